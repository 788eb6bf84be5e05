"""How a batch is taken apart after a failure, and when an event is tried again; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from ..schemas.options import Retry
from .model import Item


def split(
    items: Sequence[Item], failed: Item | None, last: Item | None = None
) -> list[tuple[bool, Sequence[Item]]]:
    """Return the pieces to try after a handler failed in a batch, each with whether it goes one by one.

    Args:
        failed: The item whose handler raised, or the first of several; None when only the commit told.
        last: The last of several that were handed over together.
    """
    if failed is None:
        return [(True, items)]
    at = next(n for n, item in enumerate(items) if item is failed)
    end = next(n for n, item in enumerate(items) if item is (last or failed)) + 1
    pieces = [(False, items[:at]), (True, items[at:end]), (False, items[end:])]
    return [piece for piece in pieces if piece[1]]


def suspected(items: Sequence[Item], suspect: int) -> list[tuple[bool, Sequence[Item]]]:
    """Return the pieces of a batch: one by one up to and including the offset `suspect`, then together."""
    several = [item.record.offset <= suspect for item in items]
    n = sum(several)
    return [piece for piece in ((True, items[:n]), (False, items[n:])) if piece[1]]


def may_retry(retry: Retry, attempts: int, first_at: datetime, now: datetime, wait: float = 0.0) -> bool:
    """Tell whether an event that failed `attempts` times may be tried again after `wait` seconds."""
    start = now + timedelta(seconds=wait)
    return attempts < retry.attempts and (retry.within is None or start - first_at < retry.within)


def delay(retry: Retry, attempts: int, dice: float, retry_after: timedelta | None = None) -> float:
    """Return the seconds to wait after the failure number `attempts`, with full jitter.

    Args:
        dice: Uniform in [0, 1).
        retry_after: What the other side asked for; it counts where it is longer.

    Full jitter: https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
    """
    bound = min(
        retry.cap.total_seconds(), retry.first.total_seconds() * retry.factor ** min(attempts - 1, 60)
    )
    asked = 0.0 if retry_after is None else retry_after.total_seconds()
    return max(asked, bound * dice)


def tried(item: Item, attempts: int) -> Item:
    """Return an event that knows the number of its try."""
    assert item.envelope is not None
    return replace(item, envelope=replace(item.envelope, delivery=attempts))
