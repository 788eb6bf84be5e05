"""What operators are told of ages: a line for each kind of row that waits, with its bounds. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from ..recovery.age_bounds import Bounds
from ..recovery.age_kinds import KINDS, Kind
from ..recovery.ages import Age, worst
from ..schemas.states import Risk
from .findings import Check, counted
from .output import span

_CODES = {"warning": "MP751", "error": "MP752"}
_CONSUME = (
    "Start a process of its service with the role consumers or signals, or see what its handlers wait for."
)
#: Of which other lines say more, by consumer or cause and topic (console/letters.py).
_TOLD = frozenset({"dead_letter", "outbox_parked"})
#: Of a consumer that has records to read and reads none.
_SILENT = Bounds(5.0, 60.0)


@dataclass(frozen=True, slots=True)
class Place:
    """How far a consumer has come in a partition, and for how long it has not moved.

    Attributes:
        unread: For how long the first record from there on has been to read; None where that is not known.
    """

    consumer: str
    topic: str
    partition: int
    offset: int
    still: timedelta
    unread: timedelta | None = None

    @property
    def waits(self) -> timedelta:
        """For how long it has had something to read and read nothing: a quiet partition is no stuck one."""
        return self.still if self.unread is None else max(timedelta(0), min(self.still, self.unread))

    @property
    def at(self) -> tuple[str, int, int]:
        """Topic, partition and offset of what it reads next."""
        return self.topic, self.partition, self.offset


def waiting(places: Sequence[Place], ends: Mapping[tuple[str, int], int]) -> set[tuple[str, int, int]]:
    """Return where consumers have something to read and have not moved for so long that its age matters."""
    return {
        place.at
        for place in places
        if ends.get((place.topic, place.partition), place.offset) > place.offset
        and _SILENT.level(place.still.total_seconds()) != "ok"
    }


def aged(
    places: Sequence[Place], written: Mapping[tuple[str, int, int], datetime], now: datetime
) -> list[Place]:
    """Return the places with the age of what waits there.

    Args:
        written: When the first record from a place on was written, where that is known.
    """
    return [
        replace(place, unread=now - written[place.at]) if place.at in written else place for place in places
    ]


def judge_consumers(places: Sequence[Place], ends: Mapping[tuple[str, int], int]) -> Iterator[Check]:
    """See which consumers have records to read and do not get on, whether or not a process of theirs can say so.

    Args:
        places: As their positions are stored, a while after the ends were seen: who works has read on by then.
        ends: Where partitions end, as Kafka says.
    """
    behind: dict[str, list[tuple[int, Place]]] = {}
    for place in places:
        lag = max(0, ends.get((place.topic, place.partition), place.offset) - place.offset)
        behind.setdefault(place.consumer, []).append((lag, place))
    for consumer, found in behind.items():
        waits = [(lag, place) for lag, place in found if lag]
        amount = counted(sum(lag for lag, _ in waits), "record")
        if not waits:
            yield Check(
                "consumers", "ok", f"consumer {consumer} is at the end of {counted(len(found), 'partition')}"
            )
            continue
        _, worst_place = max(waits, key=lambda one: one[1].waits)
        where = f"{worst_place.topic}/{worst_place.partition}"
        known = worst_place.unread is not None and worst_place.unread < worst_place.still
        still = f"{where} has {'waited to be read' if known else 'not moved'} for {span(worst_place.waits)}"
        text = f"consumer {consumer} is {amount} behind; {still} ({_words(_SILENT)})."
        level = _SILENT.level(worst_place.waits.total_seconds())
        if level == "ok":
            yield Check("consumers", "ok", text)
        else:
            yield Check("consumers", level, text, "MP754", _CONSUME)


def judge_ages(ages: Sequence[Age]) -> Iterator[Check]:
    """Say of each kind how old its oldest row is, and from when that matters."""
    for kind in KINDS.values():
        if kind.what in _TOLD:
            continue
        found = worst(age for age in ages if age.what == kind.what and age.seconds is not None)
        yield _none(kind) if found is None else _some(kind, found)


def _none(kind: Kind) -> Check:
    least, most = kind.bounds[Risk.CRITICAL], kind.bounds[Risk.LOW]
    words = _words(least) if least == most else f"CRITICAL: {_words(least)}; LOW: {_words(most)}"
    return Check(f"age_{kind.what}", "ok", f"{kind.words}: none ({words})")


def _some(kind: Kind, age: Age) -> Check:
    bounds, level = age.bounds, age.level
    whose = f"{age.first}, {age.severity.value}" if age.saga else age.first
    many = counted(age.amount, "row") + (" or more" if age.more else "")
    text = (
        f"{kind.words}: the oldest for {span(timedelta(seconds=age.seconds or 0.0))} ({whose}), {many} of that kind; "
        f"{_words(bounds)}."
    )
    if level == "ok":
        return Check(f"age_{kind.what}", "ok", text)
    return Check(f"age_{kind.what}", level, f"{text} {_meaning(kind)}", _CODES[level], kind.fix)


def _meaning(kind: Kind) -> str:
    return f"{kind.means[0].upper()}{kind.means[1:]}."


def _words(bounds: Bounds) -> str:
    first = "at once" if not bounds.warning else f"from {_short(bounds.warning)}"
    return f"warning {first}, error {'at once' if not bounds.error else 'from ' + _short(bounds.error)}"


def _short(seconds: float) -> str:
    return span(timedelta(seconds=seconds))
