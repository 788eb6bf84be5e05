"""Rate limits: whether a call may begin now, and when else. The shell keeps one row a limit (consumers/limits.py).

Promised: of the calls that were let through, never more than `calls` lie in any span of `per`. What was let through is
counted in cells of a sixteenth of `per`, and a cell counts until its end is `per` ago: so a call counts up to a
sixteenth longer than it has to, and never shorter.

Who may not begin now gets an appointment: the next time at which the limit has room, after all who wait already. Nobody
without an appointment goes before who has one, unless of a higher priority.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from ..schemas.errors import DefinitionError
from ..schemas.states import Priority, StepState
from .draft import Draft
from .model import Decision, Step

#: Cells of `per`.
CELLS = 16
SHORTEST, LONGEST = timedelta(milliseconds=1), timedelta(days=31)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """So many calls in any span of time.

    Attributes:
        queue: All work of this queue counts; None where only steps count that name the limit.
    """

    name: str
    calls: int
    per: timedelta
    queue: str | None = None


@dataclass(frozen=True, slots=True)
class Window:
    """What is known of a limit.

    Attributes:
        spent: Calls by the end of their cell, in microseconds since 1970.
        promised: The last appointment by priority.
        closed_until: The other side asked not to be called before.
    """

    spent: Mapping[int, int] = field(default_factory=dict)
    promised: Mapping[Priority, datetime] = field(default_factory=dict)
    closed_until: datetime | None = None


def check(limit: Limit) -> None:
    """Refuse a limit that lets nothing or everything through.

    Raises:
        DefinitionError: MP126.
    """
    if limit.calls < 1 or not SHORTEST <= limit.per <= LONGEST:
        raise DefinitionError(
            "MP126",
            f"limit({limit.name!r}): calls={limit.calls} must be 1 or more, and per={limit.per} between {SHORTEST} and "
            f"{LONGEST.days} days.",
        )


def ask(
    limits: Sequence[Limit],
    windows: Mapping[str, Window],
    now: datetime,
    *,
    priority: Priority = Priority.NORMAL,
    appointed: bool = False,
) -> tuple[Mapping[str, Window], datetime | None]:
    """Ask whether a call may begin that counts for these limits; it counts for all of them or for none.

    Args:
        limits: At least one.
        windows: What is known of each, by name.
        now: The database's clock, timezone-aware.
        appointed: It has an appointment, and its time has come.

    Returns:
        The windows as they are then, and None when it may begin, else when it should ask again.
    """
    kept = {limit.name: _forget(limit, windows[limit.name], now) for limit in limits}
    refusing = [limit for limit in limits if not _open(limit, kept[limit.name], now, priority, appointed)]
    if not refusing:
        return {limit.name: _count(limit, kept[limit.name], now) for limit in limits}, None
    at = max(_appointment(limit, kept[limit.name], now, priority) for limit in refusing)
    for limit in refusing:
        window = kept[limit.name]
        kept[limit.name] = replace(window, promised={**window.promised, priority: at})
    return kept, at


def _forget(limit: Limit, window: Window, now: datetime) -> Window:
    since = _micros(now) - limit.per // _MICROSECOND
    return replace(
        window,
        spent={end: calls for end, calls in window.spent.items() if end > since},
        promised={priority: at for priority, at in window.promised.items() if at > now},
    )


def _open(limit: Limit, window: Window, now: datetime, priority: Priority, appointed: bool) -> bool:
    if window.closed_until is not None and window.closed_until > now:
        return False
    return sum(window.spent.values()) < limit.calls and (appointed or _ahead(window, priority) is None)


def _ahead(window: Window, priority: Priority) -> datetime | None:
    """Return the last appointment of those who wait and are not of a lower priority."""
    return max((at for of, at in window.promised.items() if of.rank <= priority.rank), default=None)


def _count(limit: Limit, window: Window, now: datetime) -> Window:
    cell = _cell(limit)
    end = (_micros(now) // cell + 1) * cell
    return replace(window, spent={**window.spent, end: window.spent.get(end, 0) + 1})


def _appointment(limit: Limit, window: Window, now: datetime, priority: Priority) -> datetime:
    free = max(_room_at(limit, window, now), window.closed_until or now)
    ahead = _ahead(window, priority)
    return free if ahead is None else max(free, ahead + _apart(limit))


def _apart(limit: Limit) -> timedelta:
    """How far appointments lie apart, so that there is room when each comes: a call may count for a cell longer."""
    return _MICROSECOND * -(-(limit.per // _MICROSECOND + _cell(limit)) // limit.calls)


def _cell(limit: Limit) -> int:
    """Microseconds of a cell."""
    return max(limit.per // _MICROSECOND // CELLS, 1)


def _room_at(limit: Limit, window: Window, now: datetime) -> datetime:
    """Return when the next call fits, if none is let through before."""
    left = sum(window.spent.values())
    at = now
    for end in sorted(window.spent):
        if left < limit.calls:
            break
        left -= window.spent[end]
        at = _EPOCH + timedelta(microseconds=end) + limit.per
    return max(at, now)


def _micros(at: datetime) -> int:
    return (at - _EPOCH) // _MICROSECOND


def limited(draft: Draft, step: Step, until: datetime, limit: str) -> Decision:
    """Put off a step, a probe or an undo that a limit does not let begin yet: no try and no probe is used up."""
    waiting = {StepState.PENDING, StepState.UNKNOWN, StepState.COMPENSATION_PENDING}
    if step.state not in waiting:
        return draft.ignored(f"{step.name} is {step.state}: it does not wait to begin")
    if until <= draft.now:
        return draft.ignored("that time has passed")
    put_off = draft.move(step, step.state, wake_at=until, nudges=0, limited_until=until)
    draft.note("step.rate_limited", put_off, limit=limit, until=until.isoformat())
    return draft.decision()
