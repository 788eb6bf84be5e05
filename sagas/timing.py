"""Times that a run has in all: its deadline, and the time in which it may be active.

The deadline is an instant, computed from the input at the start and stored with the run. Active is a run that is PENDING
or RUNNING: waiting for an event, for a person or for an undo does not count. What has been used of it is stored whenever
the run's state changes, which is written anyway.

A limit that has passed is acted on when the run is looked at (its `wake_at` comes no later), and before anything
new begins, whoever is first. From then on the run stops at a safe boundary (stopping.py), is undone, and ends as EXPIRED.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from ..schemas.states import RunState
from . import retry
from .definition import Definition
from .model import Run
from .words import ACTIVE_TIMEOUT, DEADLINE

#: States in which the run's time is counted as active.
ACTIVE = frozenset({RunState.PENDING, RunState.RUNNING})
_BEFORE_DEADLINE = ACTIVE | {RunState.WAITING, RunState.MANUAL_REQUIRED}


def counted(definition: Definition, run: Run, state: RunState, now: datetime) -> Run:
    """Return the run with its active time counted up to now, for a change to `state`."""
    if definition.active_timeout is None:
        return run
    since = now if state in ACTIVE else None
    return replace(run, active_for=active_for(run, now), active_since=since)


def active_for(run: Run, now: datetime) -> timedelta:
    """Return how long the run has been active until now."""
    if run.active_since is None:
        return run.active_for
    return run.active_for + max(now - run.active_since, timedelta(0))


def limit(definition: Definition, run: Run) -> tuple[datetime, str] | None:
    """Return when the run has to stop and by which limit, as far as its present state lets time run.

    A run in front of a person has no active time, and one that had been stopping before it was put there has no
    deadline any more.
    """
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
