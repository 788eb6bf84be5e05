"""A world for one run: messages that get lost, workers that die or freeze, and outside systems, over a `Store`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias
from uuid import UUID

from milepost.sagas.definition import Node
from milepost.sagas.facts import (
    Claim,
    Fact,
    HandedBack,
    ProbeAbsent,
    ProbeAnswer,
    Probed,
    ProbeError,
    ProbeFailed,
    ProbeFound,
    ProbeInProgress,
    Stale,
    Start,
    Succeeded,
    TryFailed,
    Wake,
)
from milepost.sagas.model import Step
from milepost.schemas.options import Repeat
from milepost.schemas.states import HELD_STEP_STATES, StepKind, StepState

from tests.support.sagas import SECOND
from tests.support.store import Pending, Store

LEASE = 30 * SECOND
PUSH = timedelta(minutes=1)

Call: TypeAlias = Literal["ok", "lost", "late", "nothing", "retry", "not_sent", "fatal"]
Death: TypeAlias = Literal["die_before", "die_after", "zombie", "hand_back"]
How: TypeAlias = Call | Death


@dataclass
class Worker:
    """Who holds a row, as the worker itself knows it."""

    id: UUID
    row: Step


@dataclass
class Dead:
    """A worker that is gone or frozen, and when its lease ends."""

    worker: UUID
    ends: datetime


@dataclass
class World(Store):
    """Everything that happens, by hand.

    Attributes:
        pending: Transactions that take long.
        doomed: Name of a step that is refused whenever it is called.
        late: What frozen workers will still say.
        all_arrive: Calls that have left arrive in the end, at the last moment; else they may be lost.
    """

    workers: list[Worker] = field(default_factory=list)
    dead: list[Dead] = field(default_factory=list)
    pending: list[Pending] = field(default_factory=list)
    late: list[Fact] = field(default_factory=list)
    made: int = 0
    doomed: str = ""
    all_arrive: bool = False

    # --- messages and time -----------------------------------------------------------------------------

    def take(self, message: Fact | str) -> None:
        """Act on a message; work goes to a worker with a free slot."""
        if not isinstance(message, str):
            self.apply(message)
            return
        self.made += 1
        worker = UUID(int=self.made)
        claimed = self.apply(Claim(message, worker)).claimed
        if claimed is not None:
            self.workers.append(Worker(worker, claimed))

    def pass_time(self, by: timedelta) -> None:
        """Let time go on; a worker that is alive has ended its call within its time."""
        self.now += by
        self.ledger.pass_time(self.now, arrive=self.all_arrive)
        for worker in [w for w in self.workers if w.row.started_at and self.now > w.row.started_at + LEASE]:
            self.act(worker, "die_before")

    def due(self) -> list[Fact]:
        """Timers for everything that is due; the rows are pushed forward, as the waker does."""
        steps = tuple(
            replace(s, wake_at=self.now + PUSH) if s.wake_at is not None and s.wake_at <= self.now else s
            for s in self.run.steps
        )
        found: list[Fact] = [
            Wake(old.name, old.generation)
            for old, new in zip(self.run.steps, steps, strict=True)
            if old is not new
        ]
        self.run = replace(self.run, steps=steps)
        if self.run.wake_at is not None and self.run.wake_at <= self.now:
            self.run = replace(self.run, wake_at=self.now + PUSH)
            found.append(Wake(None, 0))
        return found

    def swept(self) -> list[Fact]:
        """Rows under a lease that has ended."""
        ended = {dead.worker: dead.ends for dead in self.dead if dead.ends <= self.now}
        return [
            Stale(s.name, s.fence, ended[s.worker])
            for s in self.run.steps
            if s.state in HELD_STEP_STATES and s.worker in ended
        ]

    # --- workers ---------------------------------------------------------------------------------------

    def probers(self) -> list[Worker]:
        """Workers that are about to ask a probe."""
        asking = [worker for worker in self.workers if worker.row.state is StepState.RECONCILING]
        nodes = {node.name for node in self.definition.nodes if node.probe is not None}
        return [worker for worker in asking if worker.row.name in nodes]

    def die(self, worker: Worker) -> datetime:
        """The worker is gone, or frozen; its lease ends later."""
        self.dead.append(Dead(worker.id, self.now + LEASE))
        return self.now + LEASE

    def act(self, worker: Worker, how: How, *, inline: bool = False) -> None:
        """Let a worker do its one call, or fail to, and report."""
        self.workers.remove(worker)
        row = worker.row
        if how == "hand_back":
            self.apply(HandedBack(row.name, row.fence))
            return
        fact = self._call(worker, how)
        if fact is None:
            return
        decision = self.apply(fact, worker.id if inline else None)
        if decision.claimed is not None:
            self.workers.append(Worker(worker.id, decision.claimed))

    def thaw(self, place: int) -> None:
        """A frozen worker goes on: its call arrives if there is still time, and it says what it was told."""
        fact = self.late.pop(place)
        assert not isinstance(fact, Start)
        node = self.definition.node(fact.step or "")
        if isinstance(fact, Succeeded) and node is not None and node.kind is StepKind.STEP:
            flying = [n for n, flight in enumerate(self.ledger.flights) if flight.key == node.name]
            if flying:
                self.ledger.land(flying[0])
            if not self.ledger.effects[node.name]:
                fact = TryFailed(fact.step, fact.fence, "unknown", "CODE_LATE", "nothing came back")
        elif isinstance(fact, TryFailed) and node is not None:
            self.ledger.hurry(node.name, self.now + node.settle)  # it has sent its call, if at all, by now
        self.apply(fact)

    def _call(self, worker: Worker, how: How) -> Fact | None:
        row = worker.row
        if row.kind is StepKind.UNDO:
            return self._undo(worker, how)
        node = self.definition.node(row.name)
        assert node is not None
        if row.state is StepState.RECONCILING and node.probe is not None:
            return self._probe(worker, node, how)
        if node.kind is StepKind.TX:
            return self._tx(worker, how)
        return self._do(worker, node, how)

    def _do(self, worker: Worker, node: Node, how: How) -> Fact | None:
        row, dedupes = worker.row, node.repeat is Repeat.SAFE
        how = "fatal" if how in {"ok", "late", "lost"} and row.name == self.doomed else how
        ends = self.die(worker) if how in {"die_before", "die_after", "zombie"} else self.now
        if how in {"late", "zombie"}:
            until = None if node.probe is None and dedupes else ends + node.settle
            self.ledger.send(row.name, dedupes=dedupes, until=until)
        if how == "zombie":
            self.late += [Succeeded(row.name, row.fence, {"id": "late"}), _failed(row, "unknown")]
        if how in {"die_before", "zombie"}:
            return None
        said = "refused"
        if how in {"ok", "lost", "die_after"}:
            said = self.ledger.do(row.name, dedupes=dedupes)
        elif how == "fatal":
            said = self.ledger.refuse(row.name, dedupes=dedupes)
        if how == "die_after":
            return None
        if how in {"ok", "fatal"}:
            return self._report(
                row, Succeeded(row.name, row.fence, {"id": "x"}) if said == "done" else _failed(row, "fatal")
            )
        verdict: Any = {"retry": "retry", "not_sent": "not_sent"}.get(how, "unknown")
        return self._report(row, _failed(row, verdict))

    def _report(self, row: Step, fact: Succeeded | TryFailed) -> Fact:
        """A settling repeat reports what a probe would."""
        if row.state is not StepState.RECONCILING:
            return fact
        answer: ProbeAnswer
        if isinstance(fact, Succeeded):
            answer = ProbeFound(fact.result)
        else:
            answer = (
                ProbeFailed(fact.code) if fact.verdict == "fatal" else ProbeError(fact.code, fact.message)
            )
        return Probed(row.name, row.fence, answer)

    def _tx(self, worker: Worker, how: How) -> Fact | None:
        row = worker.row
        how = "fatal" if row.name == self.doomed and how == "ok" else how
        if how in {"die_before", "die_after", "zombie"}:
            self.die(worker)
            self.late += [Succeeded(row.name, row.fence, None)] if how == "zombie" else []
            return None
        return (
            Succeeded(row.name, row.fence, None)
            if how == "ok"
            else _failed(row, "fatal" if how == "fatal" else "retry")
        )

    def _undo(self, worker: Worker, how: How) -> Fact | None:
        row = worker.row
        assert row.undo_of is not None
        if how in {"ok", "lost", "die_after", "late", "zombie"}:
            self.ledger.undo(row.undo_of)
        if how in {"die_before", "die_after", "zombie"}:
            self.die(worker)
            self.late += [Succeeded(row.name, row.fence)] if how == "zombie" else []
            return None
        verdict: Any = how if how in {"retry", "not_sent", "fatal"} else "unknown"
        return Succeeded(row.name, row.fence) if how == "ok" else _failed(row, verdict)

    def _probe(self, worker: Worker, node: Node, how: How) -> Fact | None:
        """Ask truthfully: what has arrived is found, what is on its way is not; a frozen prober answers later."""
        row = worker.row
        if how in {"die_before", "die_after", "zombie"}:
            self.die(worker)
            self.late += [Probed(row.name, row.fence, self._truth(node, "ok"))] if how == "zombie" else []
            return None
        if how in {"lost", "nothing", "retry", "not_sent"}:
            return Probed(row.name, row.fence, ProbeError("TIMEOUT", ""))
        if how == "late":
            return Probed(row.name, row.fence, ProbeInProgress(45 * SECOND))
        return Probed(row.name, row.fence, self._truth(node, how))

    def _truth(self, node: Node, how: How) -> ProbeAnswer:
        if node.kind is StepKind.WAIT:
            return ProbeFound({"id": "x"}) if how == "fatal" else ProbeAbsent()
        if self.ledger.effects[node.name]:
            return ProbeFound({"id": "x"})
        flying = any(flight.key == node.name for flight in self.ledger.flights)
        return ProbeFailed("NO") if how == "fatal" and not flying else ProbeAbsent()


def _failed(row: Step, verdict: Any) -> TryFailed:
    return TryFailed(row.name, row.fence, verdict, f"CODE_{verdict}".upper(), "said so")
