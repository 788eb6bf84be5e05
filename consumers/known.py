"""A run as this process has just stored it, good until the step that it claimed or the command that it sent has ended.

What comes next then needs no reading: whoever changes the run meanwhile moves its version, and then it is decided anew
on what is there. What may change without moving the version (a signal or a child that a row waits for, the owner of a
lock) keeps a run from being known.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from ..sagas.changing import replace
from ..sagas.model import Decision
from ..schemas.states import StepKind
from .rows import Loaded

#: Seconds for which the database's clock is taken to have gone on as this process's own.
LONGEST = 1.0
#: Most runs that are remembered between a command and its reply.
MOST = 300


@dataclass(frozen=True, slots=True)
class Known:
    """A run as it was stored.

    Attributes:
        loaded: What reading it would have brought, with the database's clock.
        at: This process's monotonic clock when that was answered, in seconds.
    """

    loaded: Loaded
    at: float

    def here(self, at: float) -> Loaded | None:
        """Return the run with the database's time now; None when that is too uncertain.

        Args:
            at: This process's monotonic clock now, in seconds.
        """
        passed = at - self.at
        if passed > LONGEST:
            return None
        known = self.loaded
        return Loaded(known.run, known.service, known.now + timedelta(seconds=passed), known.links)


def known_after(
    before: Loaded, decision: Decision, now: datetime, asked_at: float, at: float
) -> Known | None:
    """Return the run as a stored decision has left it, when all that is open is a step claimed or a command sent.

    Args:
        before: What was decided on.
        now: The database's clock when it was stored.
        asked_at: This process's monotonic clock when that was asked for, in seconds.
        at: The same clock when the answer was there; nobody knows when between the two it was stored.
    """
    if at - asked_at > LONGEST:
        return None
    if not _is_ours(decision):
        return None
    run = replace(decision.run, version=before.run.version + 1)
    return Known(Loaded(run, before.service, now, {}), at)


@dataclass(slots=True)
class Memory:
    """The runs that wait for the reply to a command, each for as long as it may be known."""

    _runs: OrderedDict[UUID, Known] = field(default_factory=OrderedDict)

    def keep(self, known: Known) -> None:
        """Remember a run, and forget those that are over."""
        runs = self._runs
        runs[known.loaded.run.id] = known
        runs.move_to_end(known.loaded.run.id)
        while len(runs) > MOST or next(iter(runs.values())).at < known.at - LONGEST:
            runs.popitem(last=False)

    def take(self, run_id: UUID) -> Known | None:
        """Return a run, and forget it: whatever is done on it changes it."""
        return self._runs.pop(run_id, None)


def _is_ours(decision: Decision) -> bool:
    """Whether all that is open in a run is one step that was claimed, or one command."""
    run = decision.run
    if run.resource is not None:
        return False
    opened = [step for step in run.steps if step.wake_at is not None]
    return len(opened) == 1 and (decision.claimed is not None or opened[0].kind is StepKind.COMMAND)
