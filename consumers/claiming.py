"""Claiming announced steps for one process, also when the answer to a claim is lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from uuid import UUID

from ..sagas.facts import Claim, Fact
from ..sagas.model import Run
from ..schemas.messages import WorkMessage
from ..schemas.states import HELD_STEP_STATES
from .engine import DATABASE_ERRORS, Engine
from .finishing import Claimed, claimed_in
from .handing import hand_over
from .lease import Lease


class Claims:
    """What this process has claimed, is about to claim, or has asked for without an answer.

    A claim whose answer was lost may have been committed: the row then says that this process holds a step which it
    does not run. It is taken up again only when the same claim is made once more, the row shows the very fence that
    the lost claim would have made, and nothing of that run is under way here. Everything else that looks like it is
    a step which has been run already, and is left to its hard timeout.

    Args:
        engine: Decides and stores.
        lease: Claims are made under its id.
    """

    def __init__(self, engine: Engine, lease: Lease) -> None:
        self._engine = engine
        self._lease = lease
        self._unanswered: dict[WorkMessage, tuple[UUID, int]] = {}
        self._asking: Counter[UUID] = Counter()
        self._busy: Counter[UUID] = Counter()

    async def claim(self, message: WorkMessage) -> Claimed | None:
        """Claim the step of a message; None when somebody else has it or it is no longer to be done."""
        asked: list[tuple[UUID, int]] = []
        recovered: list[Claimed] = []

        def fact(run: Run) -> Fact | None:
            step = run.step(message.step, message.iteration)
            if step is None or not self._lease.held():
                return None
            if step.state in HELD_STEP_STATES:
                lost = self._unanswered.get(message) == (step.worker, step.fence)
                if lost and not self._busy[run.id]:
                    recovered.append(Claimed(run, step))
                return None
            asked.append((self._lease.id, step.fence + 1))
            return Claim(message.step, self._lease.id, iteration=message.iteration)

        self._asking[message.run] += 1
        try:
            change = await self._engine.change(message.run, fact)
            claimed = claimed_in(change, recovered)
            if change is None and not recovered:
                await hand_over(self._engine, message)
        except DATABASE_ERRORS:
            if asked:
                self._unanswered[message] = asked[-1]
            raise
        finally:
            self._asking[message.run] -= 1
        self._unanswered.pop(message, None)
        return claimed

    @contextmanager
    def busy(self, run: UUID) -> Generator[None]:
        """Say that a task works on the run."""
        self._busy[run] += 1
        try:
            yield
        finally:
            self._busy[run] -= 1
            if not self._busy[run]:
                del self._busy[run]

    def alone(self, run: UUID) -> bool:
        """Whether the one task that works on the run is all that this process has to do with it."""
        return self._busy[run] <= 1 and not self._asking[run]
