"""Times that a run has in all: its deadline, and the time in which it may be active.

The deadline is an instant, computed from the input at the start and stored with the run. Active is a run that is
PENDING or RUNNING: waiting for an event, a person or a turn at a lock does not count, nor does undoing. What has been
used of it is stored whenever the run's state changes, and its row is written then anyway.

A limit that has passed is acted on when the run is looked at (its `wake_at` comes no later), and before anything new
begins, whoever is first. From then on the run stops at a safe boundary (stopping.py), is undone, and ends as EXPIRED.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from pydantic import BaseModel

from ..schemas.errors import DefinitionError, UsageError
from ..schemas.states import RunState
from . import retry
from .changing import replace
from .definition import Definition
from .model import Run
from .words import ACTIVE_TIMEOUT, DEADLINE

#: States in which the run's time is counted as active.
ACTIVE = frozenset({RunState.PENDING, RunState.RUNNING})
_BEFORE_DEADLINE = ACTIVE | {RunState.WAITING, RunState.MANUAL_REQUIRED}


def check(definition: Definition, longest: timedelta) -> None:
    """Refuse limits that limit nothing.

    Args:
        longest: Longest duration that a definition may name.

    Raises:
        DefinitionError: MP113.
    """
    active = definition.active_timeout
    if active is not None and not timedelta(0) < active <= longest:
        raise DefinitionError(
            "MP113",
            f"{definition.title}: active_timeout={active} must be more than none and at most {longest.days} days.",
        )
    if definition.deadline is not None and not callable(definition.deadline):
        raise DefinitionError(
            "MP113",
            f"{definition.title}: deadline={definition.deadline!r} must be a function of the input that returns an "
            "aware datetime.",
        )


def deadline_of(definition: Definition, value: BaseModel) -> datetime | None:
    """Return when a run with this input has to stop, in UTC; None for never.

    Raises:
        UsageError: MP338 when `deadline` raised, MP339 when it returned no aware datetime.
    """
    if definition.deadline is None:
        return None
    try:
        at = definition.deadline(value)
    except Exception as error:
        raise UsageError(
            "MP338",
            f"{definition.title}: deadline= raised {type(error).__name__}: {error}. It has to return an instant for "
            "every input; nothing was started.",
        ) from error
    return _instant(definition.title, at)


def _instant(title: str, at: object) -> datetime:
    problem = ""
    if not isinstance(at, datetime):
        problem = "is no datetime"
    elif at.utcoffset() is None:
        problem = "has no time zone, so nobody could say when it is"
    else:
        try:
            return at.astimezone(UTC)
        except OverflowError:
            problem = "is beyond what UTC can hold"
    raise UsageError(
        "MP339",
        f"{title}: deadline= returned {at!r}, which {problem}. Return an aware datetime, such as "
        "input.due when that field is an AwareDatetime.",
    )


def words(definition: Definition) -> str:
    """Say in a few words how long a run may take, or ''."""
    said = ["deadline from its input"] if definition.deadline is not None else []
    if definition.active_timeout is not None:
        said.append(f"active for at most {definition.active_timeout}")
    return ", ".join(said)


def counted(definition: Definition, run: Run, state: RunState, now: datetime) -> Run:
    """Return the run with its active time counted up to now, for a change to `state`."""
    if definition.active_timeout is None:
        return run
    since = now if state in ACTIVE else None
    return replace(run, active_for=active_for(run, now), active_since=since)


def active_for(run: Run, now: datetime) -> timedelta:
    """Return how long the run has been active until now.

    An older process changes the state and leaves `active_since` as it was.
    """
    if run.active_since is None or run.state not in ACTIVE:
        return run.active_for
    return run.active_for + max(now - run.active_since, timedelta(0))


def limit(definition: Definition, run: Run) -> tuple[datetime, str] | None:
    """Return when the run has to stop and by which limit, as far as its present state lets time run.

    A run in front of a person has no active time, and one that had been stopping before it was put there has no
    deadline any more.
    """
    if run.deadline_at is None and definition.active_timeout is None:
        return None
    found: list[tuple[datetime, str]] = []
    stopped = run.state is RunState.MANUAL_REQUIRED and run.cause is not None
    if run.deadline_at is not None and run.state in _BEFORE_DEADLINE and not stopped:
        found.append((run.deadline_at, DEADLINE))
    if definition.active_timeout is not None and run.active_since is not None and run.state in ACTIVE:
        left = definition.active_timeout - run.active_for
        found.append((retry.later(run.active_since, left), ACTIVE_TIMEOUT))
    return min(found, default=None)


def passed(definition: Definition, run: Run, now: datetime) -> str | None:
    """Return DEADLINE or ACTIVE_TIMEOUT when that limit has come and nothing has followed from it yet."""
    found = limit(definition, run)
    return found[1] if found is not None and found[0] <= now else None


def has_run_out(run: Run, now: datetime) -> bool:
    """Whether the run stops because of a limit; a step's own code of the same name is none."""
    if run.cause == DEADLINE:
        return run.deadline_at is not None and run.deadline_at <= now
    return run.cause == ACTIVE_TIMEOUT and run.active_for > timedelta(0)
