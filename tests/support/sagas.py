"""Sagas for tests, and a `Play` that feeds one run with facts by hand."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from milepost.sagas.decide import decide, then_claim
from milepost.sagas.definition import Definition
from milepost.sagas.facts import (
    Claim,
    Fact,
    HandedBack,
    ProbeAnswer,
    Probed,
    Signalled,
    Stale,
    Start,
    Succeeded,
    TryFailed,
    Verdict,
    Wake,
)
from milepost.sagas.locking import queued
from milepost.sagas.model import Decision, Limits, Run, Step
from milepost.sagas.nodes import Step as StepNode
from milepost.sagas.saga import Saga
from milepost.schemas.events import Event
from milepost.schemas.options import Found, OnFailure, Probe, Repeat, Retry
from milepost.schemas.states import FINAL_RUN_STATES, FINAL_STEP_STATES, Risk, RunState, StepState
from pydantic import BaseModel

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
RUN_ID = UUID("01970000-0000-7000-8000-000000000001")
WORKER = UUID("01970000-0000-7000-8000-00000000000a")
OTHER = UUID("01970000-0000-7000-8000-00000000000b")
LIMITS = Limits()
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


class Order(BaseModel):
    id: str


class Done(BaseModel):
    id: str


class Delivered(Event, type="test.delivered", topic="deliveries", key="id", correlate="id"):
    id: str


def new_saga(name: str = "order", version: int = 1) -> Saga[Order]:
    """Return a saga without steps."""
    return Saga(name, version=version, input=Order, key=lambda order: order.id)


def add_step(
    saga: Saga[Order],
    name: str,
    repeat: Repeat = Repeat.SAFE,
    *,
    undo: bool = False,
    blind: bool = False,
    undo_retry: Retry | None = None,
    probe: bool = False,
    settle: timedelta = MINUTE,
    give_up: timedelta = HOUR,
    retry: Retry | None = None,
    on_failure: OnFailure | None = None,
    irreversible: bool = False,
    no_undo: str | None = None,
    risk: Risk = Risk.LOW,
    detached: bool = False,
    window: timedelta | None = None,
) -> StepNode[Order, Done]:
    """Add a step with what the arguments say; the undo is named undo_<step>."""

    @saga.step(
        repeat=repeat,
        window=window,
        name=name,
        retry=retry or Retry(attempts=3, within=None),
        on_failure=on_failure,
        irreversible=irreversible,
        no_undo=no_undo,
    )
    async def run(ctx: Any) -> Done:
        return Done(id=name)

    if undo or blind:

        async def undoing(ctx: Any, done: Done | None) -> None: ...

        undoing.__name__ = f"undo_{name}"
        often = undo_retry or Retry(attempts=3, within=None)
        if blind:
            run.undo(blind=True, retry=often, risk=risk, detached=detached)(undoing)
        else:
            run.undo(retry=often, risk=risk, detached=detached)(undoing)
    if probe:

        @run.probe(settle=settle, give_up=give_up)
        async def ask(ctx: Any) -> Probe[Done]:
            return Found(Done(id=name))

    return run


def add_tx(saga: Saga[Order], name: str, **options: Any) -> StepNode[Order, None]:
    """Add a transactional step."""

    @saga.tx_step(name=name, **({"retry": Retry(attempts=3, within=None)} | options))
    async def run(ctx: Any, tx: Any) -> None: ...

    return run


def flow(saga: Saga[Order]) -> Definition:
    """Put everything in the order in which it was declared, and return the definition."""
    saga.flow(*saga.nodes)
    return saga.definition


def new_run(definition: Definition) -> Run:
    """Return a run that has just been made."""
    return Run(
        id=RUN_ID,
        tenant="",
        saga=definition.name,
        key="o-1",
        definition=definition.version,
        input={"id": "o-1"},
        state=RunState.PENDING,
        correlation_id="c-1",
        wake_at=NOW + LIMITS.sweep,
    )


class Play:
    """One run under hand-made facts; a decision that changes something is kept, as the store would.

    Attributes:
        last: The last decision.
        events: Names of all history rows so far.
    """

    def __init__(self, definition: Definition, *, started: bool = True) -> None:
        self.definition = definition
        self.run = new_run(definition)
        self.now = NOW
        self.dice = 0.5
        self.events: list[str] = []
        self.last: Decision
        if started:
            self.send(Start())

    def send(self, fact: Fact) -> Decision:
        """Decide and keep."""
        decision = decide(self.definition, self.run, fact, self.now, dice=self.dice, limits=LIMITS)
        return self._keep(decision)

    def _keep(self, decision: Decision) -> Decision:
        check_decision(self.run, decision)
        self.run = decision.run
        self.events += [entry.event for entry in decision.history]
        self.last = decision
        return decision

    def step(self, name: str) -> Step:
        """Return the row of that name."""
        step = self.run.step(name)
        assert step is not None, f"no row {name}"
        return step

    def state(self, name: str) -> StepState:
        return self.step(name).state

    def claim(self, name: str, worker: UUID = WORKER) -> Step:
        decision = self.send(Claim(name, worker))
        assert decision.claimed is not None, decision.reason
        return decision.claimed

    def succeed(self, name: str) -> Decision:
        """Claim and finish."""
        return self.send(Succeeded(name, self.claim(name).fence, {"id": name}))

    def then_claim(self, decision: Decision, queue: str = "default") -> Decision:
        """Go on inline after the last decision."""
        folded = then_claim(self.definition, decision, WORKER, self.now, queue=queue, limits=LIMITS)
        assert folded.run.history_n == decision.run.history_n + len(folded.history) - len(decision.history)
        self.run = folded.run
        return folded

    def fail(
        self, name: str, verdict: Verdict = "fatal", code: str = "NO", retry_after: timedelta | None = None
    ) -> Decision:
        """Claim and fail."""
        return self.send(TryFailed(name, self.claim(name).fence, verdict, code, "said so", retry_after))

    def probe(self, name: str, answer: ProbeAnswer) -> Decision:
        """Claim the probe and answer it."""
        return self.send(Probed(name, self.claim(name).fence, answer))

    def lose(self, name: str, at: datetime | None = None) -> Decision:
        """The worker that holds the row is gone."""
        return self.send(Stale(name, self.step(name).fence, at or self.now))

    def hand_back(self, name: str) -> Decision:
        return self.send(HandedBack(name, self.step(name).fence))

    def signal(self, name: str, body: dict[str, Any] | None = None) -> Decision:
        return self.send(Signalled(name, self.step(name).generation, body or {"id": "o-1"}))

    def present(self, name: str) -> None:
        """The signal has been matched in the database, but nobody has said so yet."""
        row = replace(self.step(name), signal={"id": "o-1"})
        self.run = replace(self.run, steps=tuple(row if s.name == name else s for s in self.run.steps))

    def wake(self, name: str | None = None) -> Decision:
        """Let time go on until the row is due, and wake it."""
        row = self.run if name is None else self.step(name)
        assert row.wake_at is not None
        self.now = max(self.now, row.wake_at)
        generation = row.generation if isinstance(row, Step) else 0
        return self.send(Wake(name, generation))

    def retry(self, name: str) -> None:
        """Wake a row that waits for its next try."""
        assert self.state(name) is StepState.RETRY_PENDING
        self.wake(name)


def check_decision(before: Run, decision: Decision) -> None:
    """Assert what holds for every decision: the database's CHECKs, and that numbers only grow."""
    run = decision.run
    assert run.history_n == before.history_n + len(decision.history)
    assert run.finish_n >= before.finish_n
    if decision.answer != "changed":
        assert (run.state, run.steps) == (before.state, before.steps)
        assert not (
            decision.changed or decision.work or decision.opens or decision.closes or decision.settled
        )
        return
    assert (run.state in FINAL_RUN_STATES) == (run.wake_at is None) == (run.finished_at is not None)
    held = {StepState.RUNNING, StepState.RECONCILING, StepState.COMPENSATING}
    for step in run.steps:
        assert (step.state in FINAL_STEP_STATES) == (step.wake_at is None), step
        assert (step.state in held) == (step.worker is not None), step
        assert (step.kind == "UNDO") == (step.undo_of is not None), step
        old = before.step(step.name, step.iteration)
        if old is None:
            continue
        assert step.fence >= old.fence
        assert step.generation >= old.generation
        by_person = old.state in {StepState.MANUAL_REQUIRED, StepState.COMPENSATION_FAILED}
        assert step.attempt >= old.attempt - 1 or (by_person and step.attempt <= 1)
        if old.state in FINAL_STEP_STATES:
            assert step == old, "a final row never changes"
    for row in decision.changed:
        assert run.step(row.name, row.iteration) == row
    with_person = {RunState.MANUAL_REQUIRED, RunState.COMPENSATION_FAILED}
    if run.state not in FINAL_RUN_STATES | with_person:
        assert has_live_row(run) or queued(run), "a live run without a live row"


def has_live_row(run: Run) -> bool:
    """Whether some row of the run says when somebody looks at it again."""
    return any(step.state not in FINAL_STEP_STATES for step in run.steps)
