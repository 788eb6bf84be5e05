"""One change of a run on a given connection: load, decide, store; again when somebody else was faster.

All roles, the start of a run and the test kit go through here.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from uuid import UUID

import asyncpg

from ..outbox.model import OutboxRow, message_row
from ..outbox.publish import publish_rows
from ..sagas.decide import decide, then_claim
from ..sagas.definition import operation_key
from ..sagas.facts import Fact
from ..sagas.model import Decision, Limits, Run, Step, Work
from ..sagas.registry import Definitions
from ..schemas.artifacts import Artifact
from ..schemas.ids import Clock, Ids, Randomness
from ..schemas.messages import (
    ChildEndedMessage,
    ChildMessage,
    ResumeMessage,
    TimerMessage,
    WorkMessage,
    compensation_topic,
    runs_topic,
    work_topic,
)
from ..schemas.states import FINAL_RUN_STATES
from . import artifacts, resources, sending
from .attempts import Attempt, Hold
from .known import Known
from .requests import keep_said
from .resources import Granted
from .rows import Loaded, is_empty
from .store import Conflict, load_run, open_waits, store_decision

#: Compare-and-set misses after which the run's row is locked before it is read (design section 7).
MISSES_BEFORE_LOCK = 3

FactOf: TypeAlias = Fact | Callable[[Run], Fact | None]


@dataclass(frozen=True, slots=True)
class Change:
    """What one fact changed.

    Attributes:
        before: The run as it was decided on.
        decision: The stored decision; answer "ignored" or "refused" when nothing was changed.
        known: The run as it was stored, where it need not be read again.
    """

    before: Loaded
    decision: Decision
    known: Known | None = None


@dataclass(frozen=True, slots=True)
class InlineClaim:
    """Who would go on with the next step at once.

    Attributes:
        worker: The lease id under which the present step was claimed; the next one is claimed under the same.
        wanted: Whether that is still wanted when the time comes, and that lease still holds.
        attempt: Is told what is claimed, should the answer be lost.
        limited: Whether a step has to ask a rate limit before it is claimed.
    """

    worker: UUID
    queue: str
    wanted: Callable[[], bool]
    attempt: Attempt
    limited: Callable[[Run, Step], bool]


@dataclass(frozen=True, kw_only=True)
class Changes:
    """The shell around `decide` for one service; it writes on whatever connection it is given.

    Args:
        service: Name of the service; prefix of its topics.
        definitions: What this process can decide on.
        limits: Nudges, slack, reminders.
        own_session: Whether settings made on a connection stay until it is given back, as behind a transaction-mode
            pooler they do not.
    """

    service: str
    definitions: Definitions
    clock: Clock
    ids: Ids
    randomness: Randomness
    limits: Limits = field(default_factory=Limits)
    own_session: bool = False

    async def apply(
        self,
        connection: asyncpg.Connection[Any],
        run_id: UUID,
        fact: FactOf,
        *,
        emitted: Sequence[OutboxRow] = (),
        made: Sequence[Artifact] = (),
        inline: InlineClaim | None = None,
    ) -> Change | None:
        """Apply a fact to a run.

        Args:
            connection: With or without an open transaction (READ COMMITTED); within one, the change commits with it.
            run_id: The run.
            fact: What happened, or a function from the loaded run to it (None: nothing to do after all).
            emitted: Events that leave with this change, or not at all.
            made: Artifacts that are recorded with it, or not at all.
            inline: Claim the next local step in the same change.

        Returns:
            The change, or None when the run does not exist, is another service's, is of a definition that this
            process lacks, or the function returned None.
        """
        misses = 0
        while True:
            lock = misses >= MISSES_BEFORE_LOCK
            try:
                async with _transaction(connection, lock):
                    loaded = await load_run(connection, run_id, lock=lock)
                    decision = None if loaded is None else self.decide(loaded, fact, inline)
                    if loaded is None or decision is None:
                        return None
                    await self.store(connection, loaded.run, decision, emitted, made)
                    return Change(loaded, decision)
            except Conflict:
                misses += 1

    def decide(self, loaded: Loaded, fact: FactOf, inline: InlineClaim | None = None) -> Decision | None:
        """Decide with this process's definitions, dice and limits; None as in `apply`."""
        run = loaded.run
        if loaded.service != self.service:
            # Two services may have a saga of the same name; what follows would go to the wrong one's topics.
            return None
        definition = self.definitions.of(run)
        if inline is not None:
            inline.attempt.anew()
        happened = fact(run) if callable(fact) else fact
        if definition is None or happened is None:
            return None
        dice = self.randomness.uniform()
        decision = decide(definition, run, happened, loaded.now, dice=dice, limits=self.limits)
        if inline is not None and decision.answer == "changed" and inline.wanted():
            following = then_claim(
                definition, decision, inline.worker, loaded.now, queue=inline.queue, limits=self.limits
            )
            claimed = following.claimed
            if claimed is None or not inline.limited(following.run, claimed):
                if claimed is not None:
                    inline.attempt.asks(Hold.of(run.id, claimed))
                return following
        return decision

    async def store(
        self,
        connection: asyncpg.Connection[Any],
        before: Run,
        decision: Decision,
        emitted: Sequence[OutboxRow] = (),
        made: Sequence[Artifact] = (),
        *,
        begins: bool = False,
    ) -> None:
        """Store a decision with its messages: one statement, or a transaction where there is more to it.

        Args:
            begins: Whether the run is not there yet.

        Raises:
            Conflict: Somebody was faster; nothing was written.
        """
        if is_empty(decision):
            return
        rows = self.messages(decision, emitted)
        recorded = made if decision.answer == "changed" else ()
        several = bool(decision.opens or decision.closes or decision.lock or decision.said or recorded)
        async with _transaction(connection, several):
            await store_decision(
                connection, before, decision, rows, self.ids, begins=self.service if begins else None
            )
            if recorded:
                await artifacts.record(connection, decision.run.tenant, recorded)
            if decision.said:
                await keep_said(connection, decision.run, decision.said, self.ids)
            if decision.opens:
                await open_waits(connection, decision, self._resumes(decision))
            if decision.lock is not None:
                granted = await resources.carry_out(connection, decision.run, decision.lock)
                await publish_rows(connection, [self._look_row(run) for run in granted])

    def messages(self, decision: Decision, emitted: Sequence[OutboxRow] = ()) -> list[OutboxRow]:
        """Return what leaves with a decision; events only when it changed something."""
        rows = [self.work_row(decision.run, work) for work in decision.work]
        rows += [sending.row_of(self, decision.run, send) for send in decision.sends]
        rows += self._of_children(decision)
        if decision.answer == "changed":
            rows.extend(emitted)
        if decision.lock == "enter":
            rows.append(self._look_row(Granted.of(decision.run, self.service)))
        return rows

    def _of_children(self, decision: Decision) -> list[OutboxRow]:
        run, topic = decision.run, runs_topic(self.service)
        found: list[ChildMessage | ChildEndedMessage] = [
            ChildMessage(run=run.id, step=seek.step, iteration=seek.iteration) for seek in decision.seeks
        ]
        if run.watched and decision.answer == "changed" and run.state in FINAL_RUN_STATES:
            found.append(ChildEndedMessage(run=run.id))
        return [self._row(run, message, topic, str(run.id)) for message in found]

    def work_row(self, run: Run, work: Work) -> OutboxRow:
        """Return the outbox row that announces work."""
        topic = work_topic if work.lane == "work" else compensation_topic
        message = WorkMessage(
            run=run.id, saga=run.saga, definition=run.definition, step=work.step, iteration=work.iteration
        )
        return self._row(
            run,
            message,
            topic(self.service, work.queue, run.priority),
            operation_key(run.id, work.step, work.iteration),
        )

    def _resumes(self, decision: Decision) -> list[OutboxRow]:
        run = decision.run
        return [
            self.resume_row(
                run,
                ResumeMessage(
                    run=run.id, step=wait.step, iteration=wait.iteration, generation=wait.generation
                ),
            )
            for wait in decision.opens
        ]

    def _look_row(self, run: Granted) -> OutboxRow:
        """Return the row that makes the orchestrator of a run's service look at it, like a due timer."""
        return message_row(
            TimerMessage(run=run.run_id, step=None, generation=0),
            topic=runs_topic(run.service),
            key=str(run.run_id),
            ids=self.ids,
            clock=self.clock,
            tenant=run.tenant,
            service=self.service,
            correlation_id=run.correlation_id,
            traceparent=run.traceparent,
        )

    def resume_row(self, run: Run, message: ResumeMessage) -> OutboxRow:
        """Return the outbox row that says a wait has been matched."""
        return self._row(run, message, runs_topic(self.service), str(run.id))

    def _row(
        self,
        run: Run,
        message: WorkMessage | ResumeMessage | ChildMessage | ChildEndedMessage,
        topic: str,
        key: str,
    ) -> OutboxRow:
        return message_row(
            message,
            topic=topic,
            key=key,
            ids=self.ids,
            clock=self.clock,
            tenant=run.tenant,
            service=self.service,
            correlation_id=run.correlation_id,
            traceparent=run.traceparent,
        )


@asynccontextmanager
async def _transaction(connection: asyncpg.Connection[Any], needed: bool) -> AsyncGenerator[None]:
    if not needed:
        yield
        return
    async with connection.transaction():
        yield
