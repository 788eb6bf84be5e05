"""When the next try starts, and when there is none."""

from __future__ import annotations

from datetime import datetime, timedelta

from ..schemas.options import Retry
from .model import Step

#: No instant is set further ahead: what another system asks for must not overflow a date.
FURTHEST = timedelta(days=3650)
#: Backoff of a probe that raises: 10 s doubling to 5 min.
PROBE_FIRST = timedelta(seconds=10)
PROBE_CAP = timedelta(minutes=5)
_NONE = timedelta(0)


def later(now: datetime, by: timedelta) -> datetime:
    """Return `now + by`, with `by` kept between zero and ten years."""
    return now + min(max(by, _NONE), FURTHEST)


def grown(first: timedelta, factor: float, steps: int, cap: timedelta) -> timedelta:
    """Return `min(cap, first * factor ** steps)` without overflow."""
    try:
        seconds = first.total_seconds() * factor ** max(steps, 0)
    except OverflowError:
        return cap
    return cap if seconds >= cap.total_seconds() else timedelta(seconds=seconds)


def delay(retry: Retry, attempt: int, dice: float, retry_after: timedelta | None) -> timedelta:
    """Return how long to wait after the given try has failed.

    Args:
        attempt: The try that failed, from 1.
        dice: Uniform in [0, 1): full jitter, https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
        retry_after: What the other side asked for; wins when it is longer.
    """
    drawn = grown(retry.first, retry.factor, attempt - 1, retry.cap) * dice
    return drawn if retry_after is None else max(drawn, retry_after)


def used_up(retry: Retry, step: Step, start: datetime) -> bool:
    """Whether a further try at `start` is beyond the attempts or beyond `within` after the first."""
    if step.attempt >= retry.attempts:
        return True
    return retry.within is not None and step.first_at is not None and start > step.first_at + retry.within


def probe_backoff(probes: int) -> timedelta:
    """Return the pause after the given number of probes that raised."""
    return grown(PROBE_FIRST, 2.0, probes - 1, PROBE_CAP)


def nudge(first: timedelta, cap: timedelta, nudges: int) -> timedelta:
    """Return the pause before unclaimed work is announced again, after that many repetitions."""
    return grown(first, 2.0, nudges, cap)
