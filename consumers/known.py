"""A run as this process has just stored it, good until the step that it claimed then has ended.

What is done inline after another step needs no reading: whoever changes the run meanwhile moves its version, and then
it is decided anew on what is there. What may change without moving the version (a signal or a child that a row waits
for, the owner of a lock) keeps a run from being known.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from ..sagas.changing import replace
from ..sagas.model import Decision, Run
from .store import Loaded

#: Seconds for which the database's clock is taken to have gone on as this process's own.
LONGEST = 1.0


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
    """Return the run as a stored decision has left it, when it has claimed a step and nothing else is open.

    Args:
        before: What was decided on.
        now: The database's clock when it was stored.
        asked_at: This process's monotonic clock when that was asked for, in seconds.
        at: The same clock when the answer was there; nobody knows when between the two it was stored.
    """
    if at - asked_at > LONGEST:
        return None
    if decision.claimed is None or not _is_ours(decision.run):
        return None
    run = replace(decision.run, version=before.run.version + 1)
    return Known(Loaded(run, before.service, now, {}), at)


def _is_ours(run: Run) -> bool:
    """Whether all that is open in a run is one step."""
    return run.resource is None and sum(step.wake_at is not None for step in run.steps) == 1
