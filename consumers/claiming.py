"""Claiming announced steps for one process, also when the answer to a claim is lost."""

from __future__ import annotations

from ..sagas.facts import Claim, Fact
from ..sagas.model import Run
from ..schemas.messages import WorkMessage
from ..schemas.states import HELD_STEP_STATES
from .attempts import Attempts, Claimed, Hold
from .engine import Engine
from .handing import hand_over
from .lease import Lease


class Claims:
    """Makes the claims of one worker.

    Args:
        engine: Decides and stores.
        lease: Claims are made under its id.

    Attributes:
        attempts: What this worker asks the database, and what it was not answered.
    """

    def __init__(self, engine: Engine, lease: Lease) -> None:
        self._engine = engine
        self._lease = lease
        changes = engine.changes
        # Half of the slack that a hard timeout has beyond the try; the other half is the reading before the claim.
        within = changes.limits.slack.total_seconds() / 2
        self.attempts = Attempts(lease.held, changes.clock.monotonic, within)

    async def claim(self, message: WorkMessage) -> Claimed | None:
        """Claim the step of a message; None when somebody else has it or it is no longer to be done."""
        with self.attempts.attempt(message.run) as attempt:

            def fact(run: Run) -> Fact | None:
                attempt.anew()
                step = run.step(message.step, message.iteration)
                if step is None or not self._lease.held():
                    return None
                if step.state in HELD_STEP_STATES:
                    attempt.recover(run, step)
                    return None
                worker = self._lease.id
                attempt.asks(Hold(run.id, step.name, step.iteration, worker, step.fence + 1))
                return Claim(message.step, worker, iteration=message.iteration)

            change = await self._engine.change(message.run, fact)
            claimed = attempt.answered(change)
        if change is None and claimed is None:
            await hand_over(self._engine, message)
        return claimed
