"""Which offsets a replay reads, and which it may apply. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TypeAlias

from ..schemas.errors import StateError, UsageError

#: Offsets by partition. As `since` the first one to read, as `until` the first one not to read; partitions that are
#: not named are left out.
Offsets: TypeAlias = Mapping[int, int]
Edge: TypeAlias = datetime | Offsets
#: By partition, the first offset at an instant or later; None when there is none.
Found: TypeAlias = Mapping[int, int | None]


def slice_of(
    topic: str,
    bounds: Mapping[int, tuple[int, int]],
    since: Offsets | Found,
    until: Offsets | Found | None,
) -> tuple[dict[int, int], dict[int, int]]:
    """Return where to begin and before which offset to end, by partition.

    Args:
        bounds: First offset and the one behind the last, of each partition that there is.
        since: Where to begin; None of a partition for its end.
        until: Where to end; None of a partition, or altogether, for its end.

    Raises:
        UsageError: MP491 for a partition that the topic does not have, or a slice that ends before it begins.
    """
    for partition in {*since, *(until or {})} - bounds.keys():
        raise UsageError(
            "MP491", f"replay: topic {topic} has no partition {partition}, it has 0 to {len(bounds) - 1}."
        )
    begins, ends = {}, {}
    for partition in sorted(since if until is None else since.keys() & until.keys()):
        low, high = bounds[partition]
        begin, end = since[partition], None if until is None else until[partition]
        if begin is not None and end is not None and end < begin:
            raise UsageError(
                "MP491",
                f"replay: the slice of {topic}/{partition} ends at {end}, before its beginning {begin}.",
            )
        begins[partition] = high if begin is None else min(max(begin, low), high)
        ends[partition] = max(begins[partition], high if end is None else min(end, high))
    return begins, ends


def read_up_to(
    stored: Mapping[int, int], committed: Mapping[int, int], bounds: Mapping[int, object]
) -> dict[int, int]:
    """Return how far a consumer has come: the lower of its stored position and its group's offset.

    The group's may be lower where somebody has reset it, and then the consumer is on its way through old events again.
    """
    return {
        partition: min(stored.get(partition, 0), committed.get(partition, stored.get(partition, 0)))
        for partition in bounds
    }


def require_applicable(
    *,
    consumer: str,
    topic: str,
    begins: Mapping[int, int],
    ends: Mapping[int, int],
    live: Mapping[int, int],
    floor: datetime,
    remembered: Found,
) -> None:
    """Refuse to apply what may have been applied and forgotten, or what the consumer has not come to yet.

    Args:
        live: How far the consumer has come, by partition.
        floor: Since when its inbox remembers.
        remembered: By partition, the first offset from then on.

    Raises:
        StateError: MP492 below the floor, MP493 from the live position on; each names the offsets that are allowed.
    """
    firsts = {p: ends[p] if (first := remembered.get(p)) is None else first for p in begins}
    if any(begins[p] < min(firsts[p], ends[p]) for p in begins):
        since = floor.isoformat(timespec="seconds").replace("+00:00", "Z")
        raise StateError(
            "MP492",
            f"replay --apply: the inbox of {consumer} remembers what was applied since {since}. The slice of {topic} "
            f"begins before that, where what is missing may have been applied and forgotten. Say "
            f"--since {written({p: max(begins[p], firsts[p]) for p in begins})} or later.",
        )
    if any(ends[p] > max(live.get(p, 0), begins[p]) for p in begins):
        allowed = {p: min(ends[p], max(begins[p], live.get(p, 0))) for p in begins}
        raise StateError(
            "MP493",
            f"replay --apply: consumer {consumer} has read {topic} up to "
            f"{written({p: live.get(p, 0) for p in begins})}, and the slice goes further. What it has not come to yet "
            f"it applies itself, in order. Leave --until out, or say --until {written(allowed)}.",
        )


def written(offsets: Offsets) -> str:
    """Write offsets as the command line takes them: 0:120,1:90."""
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(offsets.items()))
