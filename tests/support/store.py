"""A store for one run: compare-and-set on a version, waits and signals, messages that leave with a commit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from milepost.sagas.decide import decide, then_claim
from milepost.sagas.definition import Definition
from milepost.sagas.facts import Fact, Signalled, Start, Succeeded
from milepost.sagas.model import Decision, Run
from milepost.schemas.states import StepKind

from tests.support.providers import Ledger
from tests.support.sagas import LIMITS, NOW, check_decision, new_run


@dataclass
class Pending:
    """A transaction that has read and decided, and not yet committed."""

    read: Run
    at: datetime
    fact: Fact
    inline: UUID | None
    decision: Decision


@dataclass
class Store:
    """What survives.

    Attributes:
        messages: Signals to look again: facts for the orchestrator, names of rows for workers.
        waits: Registered waits by step and generation, with the signal that each was matched with.
        deadline: How long after its start the run has to stop; None for never.
        early: Signals that came before their wait.
        log: Everything that was committed, in order.
    """

    definition: Definition
    dice: float = 0.5
    deadline: timedelta | None = None
    run: Run = field(init=False)
    now: datetime = NOW
    messages: list[Fact | str] = field(default_factory=list)
    ledger: Ledger = field(default_factory=Ledger)
    waits: dict[tuple[str, int], Mapping[str, Any] | None] = field(default_factory=dict)
    early: list[Mapping[str, Any]] = field(default_factory=list)
    signals: int = 0
    log: list[Pending] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.run = self.begun()
        self.apply(Start())

    def begun(self) -> Run:
        """Return the run as it is inserted."""
        run = new_run(self.definition)
        limits = (self.deadline, self.definition.active_timeout)
        return replace(
            run,
            deadline_at=None if self.deadline is None else NOW + self.deadline,
            active_since=None if self.definition.active_timeout is None else NOW,
            wake_at=NOW + min(LIMITS.sweep, *(limit for limit in limits if limit is not None), LIMITS.sweep),
        )

    def load(self) -> Run:
        """Read the run, with the signals that its waits were matched with."""
        steps = tuple(replace(s, signal=self.waits.get((s.name, s.generation))) for s in self.run.steps)
        return replace(self.run, steps=steps)

    def begin(self, fact: Fact, inline: UUID | None = None) -> Pending:
        """Load and decide."""
        loaded = self.load()
        decision = decide(self.definition, loaded, fact, self.now, dice=self.dice, limits=LIMITS)
        check_decision(loaded, decision)
        if inline is not None:
            decision = then_claim(self.definition, decision, inline, self.now, queue="default", limits=LIMITS)
        return Pending(loaded, self.now, fact, inline, decision)

    def commit(self, pending: Pending) -> bool:
        """Store a decision if nobody has changed the run since, and send what goes with it."""
        decision = pending.decision
        if decision.answer != "changed":
            return True
        if pending.read.version != self.run.version:
            return False
        if any(self.waits.get((wait.step, wait.generation)) is not None for wait in decision.closes):
            return False
        self.log.append(pending)
        self.run = replace(decision.run, version=self.run.version + 1)
        for wait in decision.closes:
            del self.waits[wait.step, wait.generation]
        for opened in decision.opens:
            self.waits[opened.step, opened.generation] = None
            if self.early:
                self._match(opened.step, opened.generation, self.early.pop(0))
        self.messages += [work.step for work in decision.work]
        self._commit_effect(pending.fact)
        return True

    def apply(self, fact: Fact, inline: UUID | None = None) -> Decision:
        """Load, decide, commit; again when somebody else was first."""
        for _ in range(3):
            pending = self.begin(fact, inline)
            if self.commit(pending):
                return pending.decision
        raise AssertionError(f"{fact} never commits")

    def _commit_effect(self, fact: Fact) -> None:
        """A transactional step's own SQL commits with its checkpoint."""
        node = self.definition.node(fact.step) if isinstance(fact, Succeeded) else None
        if node is not None and node.kind is StepKind.TX:
            self.ledger.do(node.name, dedupes=False)

    def _match(self, step: str, generation: int, body: Mapping[str, Any]) -> None:
        self.waits[step, generation] = body
        self.messages.append(Signalled(step, generation, body))

    def signal(self) -> None:
        """An awaited event comes: it is stored, and matched with the open wait if there is one."""
        self.signals += 1
        body = {"id": f"s-{self.signals}"}
        for (step, generation), taken in self.waits.items():
            row = self.run.step(step)
            if taken is None and row is not None and row.generation == generation:
                self._match(step, generation, body)
                return
        self.early.append(body)

    def folded(self) -> Run:
        """Decide everything that was committed once more, one after the other, as if nobody had been in the way."""
        run = self.begun()
        for done in self.log:
            signals = {(s.name, s.generation): s.signal for s in done.read.steps}
            steps = tuple(replace(s, signal=signals.get((s.name, s.generation))) for s in run.steps)
            run = replace(run, steps=steps)
            decision = decide(self.definition, run, done.fact, done.at, dice=self.dice, limits=LIMITS)
            if done.inline is not None:
                decision = then_claim(
                    self.definition, decision, done.inline, done.at, queue="default", limits=LIMITS
                )
            run = replace(decision.run, version=run.version + 1)
        return run


def essence(run: Run) -> Run:
    """Return a run without what the waker pushes and what is only loaded."""
    steps = tuple(replace(step, wake_at=None, signal=None) for step in run.steps)
    return replace(run, wake_at=None, steps=steps, history_n=0)
