"""A world for one run of a nested flow: many workers at once, participants, signals, persons, and what goes wrong."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias
from uuid import UUID

from milepost.sagas.decide import decide
from milepost.sagas.facts import (
    Act,
    Claim,
    Fact,
    HandedBack,
    ProbeAbsent,
    Probed,
    ProbeError,
    ProbeFailed,
    ProbeFound,
    Replied,
    Signalled,
    Stale,
    Start,
    Succeeded,
    TryFailed,
    Wake,
)
from milepost.sagas.model import Decision, Run, Step
from milepost.schemas.options import Repeat
from milepost.schemas.states import HELD_STEP_STATES, StepKind, StepState

from tests.support.nested_drawn import Leaf, Seq, build, leaves
from tests.support.nested_model import Key
from tests.support.sagas import LIMITS, MINUTE, NOW, SECOND, check_decision, new_run

LEASE = 30 * SECOND
PUSH = MINUTE
#: A command that is not delivered within the time in which its reply is awaited never is.
UNDER_WAY = 59 * MINUTE

How: TypeAlias = Literal[
    "ok", "lost", "nothing", "retry", "not_sent", "die_before", "die_after", "freeze", "hand_back"
]


@dataclass(frozen=True)
class Work:
    """An announcement to the workers."""

    key: Key


@dataclass(frozen=True)
class Letter:
    """A command on its way to a participant."""

    key: Key
    attempt: int
    direction: Literal["do", "undo"]
    sent_at: datetime


Message: TypeAlias = Fact | Work | Letter


@dataclass
class Worker:
    """Who holds a row."""

    id: UUID
    row: Step


@dataclass
class Pending:
    """A transaction that has read and decided, and not yet committed."""

    read: Run
    at: datetime
    fact: Fact
    decision: Decision


@dataclass
class Outside:
    """What the other sides have done, by leaf and round; undos in the order in which they were first asked for."""

    effects: Counter[Key] = field(default_factory=Counter)
    undone: list[Key] = field(default_factory=list)

    def do(self, key: Key, *, dedupes: bool) -> bool:
        """Do it; one that dedupes does it once, and refuses what comes after its undo."""
        if dedupes and key in self.undone:
            return False
        if not dedupes or not self.effects[key]:
            self.effects[key] += 1
        return True

    def undo(self, key: Key) -> None:
        if key not in self.undone:
            self.undone.append(key)


@dataclass
class NestedWorld:
    """One run, stored by compare-and-set, and everybody around it.

    Attributes:
        messages: Signals to look again, commands and replies; each may be lost, repeated, late or early.
        waits: Open waits by leaf, round and generation, with the event that each was matched with.
        frozen: What workers will say whose lease has ended.
        log: Everything that was committed, in order.
        told: A person has decided something that the flow leaves to persons.
    """

    tree: Seq
    now: datetime = NOW
    messages: list[Message] = field(default_factory=list)
    workers: list[Worker] = field(default_factory=list)
    dead: dict[UUID, datetime] = field(default_factory=dict)
    frozen: list[Fact] = field(default_factory=list)
    pending: list[Pending] = field(default_factory=list)
    waits: dict[tuple[str, str, int], Any] = field(default_factory=dict)
    outside: Outside = field(default_factory=Outside)
    log: list[Pending] = field(default_factory=list)
    told: bool = False
    made: int = 0
    run: Run = field(init=False)

    def __post_init__(self) -> None:
        self.definition = build(self.tree)
        self.leaves = {leaf.name: leaf for leaf in leaves(self.tree)}
        self.run = new_run(self.definition)
        self.apply(Start())

    # --- the store -------------------------------------------------------------------------------------

    def load(self) -> Run:
        """Read the run, with the events that its waits were matched with."""
        steps = tuple(
            replace(s, signal=self.waits.get((s.name, s.iteration, s.generation)))
            if s.kind is StepKind.WAIT
            else s
            for s in self.run.steps
        )
        return replace(self.run, steps=steps)

    def begin(self, fact: Fact) -> Pending:
        """Load and decide."""
        loaded = self.load()
        decision = decide(self.definition, loaded, fact, self.now, dice=0.5, limits=LIMITS)
        check_decision(loaded, decision)
        return Pending(loaded, self.now, fact, decision)

    def commit(self, pending: Pending) -> bool:
        """Store a decision if nobody has changed the run since, and send what goes with it."""
        decision = pending.decision
        if decision.answer != "changed":
            return True
        if pending.read.version != self.run.version:
            return False
        if any(self.waits.get((w.step, w.iteration, w.generation)) is not None for w in decision.closes):
            return False
        self.log.append(pending)
        self.run = replace(decision.run, version=self.run.version + 1)
        for wait in decision.closes:
            del self.waits[wait.step, wait.iteration, wait.generation]
        for opened in decision.opens:
            self.waits[opened.step, opened.iteration, opened.generation] = None
        self.messages += [Work((work.step, work.iteration)) for work in decision.work]
        self.messages += [
            Letter((one.step, one.iteration), one.attempt, "do", self.now) for one in decision.sends
        ]
        self._commit_effect(pending)
        return True

    def apply(self, fact: Fact) -> Decision:
        """Load, decide, commit."""
        pending = self.begin(fact)
        assert self.commit(pending), "nobody was in between"
        return pending.decision

    def _commit_effect(self, pending: Pending) -> None:
        """A transactional step's own SQL, and the command of an undo, commit with the checkpoint."""
        fact = pending.fact
        if not isinstance(fact, Succeeded):
            return
        key = (fact.step, fact.iteration)
        row = pending.read.step(*key)
        assert row is not None
        if row.kind is StepKind.TX and row.state is StepState.RUNNING:
            self.outside.do(key, dedupes=False)
        elif fact.awaits_reply and row.undo_of is not None:
            self.messages.append(Letter((row.undo_of, fact.iteration), row.attempt, "undo", self.now))

    # --- messages and time -----------------------------------------------------------------------------

    def take(self, message: Message) -> None:
        """Act on a message."""
        if isinstance(message, Letter):
            self._participant(message)
        elif isinstance(message, Work):
            self.made += 1
            worker = UUID(int=self.made)
            claimed = self.apply(Claim(message.key[0], worker, message.key[1])).claimed
            if claimed is not None:
                self.workers.append(Worker(worker, claimed))
        else:
            self.apply(message)

    def receive(self, message: Message, *, slowly: bool) -> None:
        """Act on a message; slowly = read and decide now, and commit some time, or never."""
        if slowly and not isinstance(message, Letter | Work):
            self.pending.append(self.begin(message))
        else:
            self.take(message)

    def _participant(self, letter: Letter) -> None:
        """Do each operation once, remember it, and refuse what comes after its undo."""
        name, iteration = letter.key
        leaf, outcome = self.leaves[name], "refused"
        if letter.direction == "undo":
            outcome = "done" if self.outside.effects[letter.key] else "nothing-to-undo"
            self.outside.undo(letter.key)
        elif leaf.fate == "ok" and self.outside.do(letter.key, dedupes=True):
            outcome = "done"
        reply = Replied(name, letter.direction, letter.attempt, outcome, iteration=iteration, code="NO")
        done = letter.direction == "do" and outcome == "done"
        self.messages.append(replace(reply, payload={"truck": "t"}, version=1, code="") if done else reply)

    def signal(self) -> None:
        """Every awaited event that comes at all is stored now, and matched with its wait."""
        for (name, iteration, generation), taken in list(self.waits.items()):
            row = self.run.step(name, iteration)
            here = row is not None and row.generation == generation
            if taken is None and here and self.leaves[name].fate == "ok":
                self.waits[name, iteration, generation] = {"id": "o-1"}
                self.messages.append(Signalled(name, generation, {"id": "o-1"}, iteration))

    def pass_time(self, by: timedelta) -> None:
        """Let time go on: events come before their waits time out, and no call outlasts its worker's lease."""
        if by >= MINUTE:
            self.signal()
        self.now += by
        self.messages = [
            m for m in self.messages if not (isinstance(m, Letter) and self.now > m.sent_at + UNDER_WAY)
        ]
        for worker in [w for w in self.workers if w.row.started_at and self.now > w.row.started_at + LEASE]:
            self.act(worker, "die_before")

    def due(self) -> list[Fact]:
        """Timers for everything that is due; the rows are pushed forward, as the waker does."""
        found: list[Fact] = []
        steps = []
        for step in self.run.steps:
            is_due = step.wake_at is not None and step.wake_at <= self.now
            steps.append(replace(step, wake_at=self.now + PUSH) if is_due else step)
            found += [Wake(step.name, step.generation, step.iteration)] if is_due else []
        self.run = replace(self.run, steps=tuple(steps))
        if self.run.wake_at is not None and self.run.wake_at <= self.now:
            self.run = replace(self.run, wake_at=self.now + PUSH)
            found.append(Wake(None, 0))
        return found

    def swept(self) -> list[Fact]:
        """Rows under a lease that has ended."""
        return [
            Stale(s.name, s.fence, self.dead[s.worker], s.iteration)
            for s in self.run.steps
            if s.state in HELD_STEP_STATES and s.worker in self.dead and self.dead[s.worker] <= self.now
        ]

    # --- workers ---------------------------------------------------------------------------------------

    def act(self, worker: Worker, how: How) -> None:
        """Let a worker do its one call, or fail to, and report."""
        self.workers.remove(worker)
        row = worker.row
        if how == "hand_back":
            self.apply(HandedBack(row.name, row.fence, row.iteration))
            return
        if how in {"die_before", "die_after", "freeze"}:
            self.dead[worker.id] = self.now + LEASE
        if how == "die_before":
            return
        fact = self._called(row, how)
        if how == "freeze":
            self.frozen.append(fact)
        elif how != "die_after":
            self.apply(fact)

    def act_together(self, *workers: Worker) -> None:
        """Several calls end at one instant: all read and decide on the same rows; who is not first decides anew."""
        for worker in workers:
            self.workers.remove(worker)
        pending = [self.begin(self._called(worker.row, "ok")) for worker in workers]
        for one in pending:
            if not self.commit(one):
                self.apply(one.fact)

    def _called(self, row: Step, how: How) -> Fact:
        """Call, and return what the worker has to say."""
        reaches = how in {"ok", "lost", "die_after", "freeze"}
        if row.kind is StepKind.UNDO:
            return self._undone(row, how, reaches=reaches)
        leaf, key = self.leaves[row.name], (row.name, row.iteration)
        if row.state is StepState.RECONCILING and self.definition.node(row.name).probe:  # type: ignore[union-attr]
            return self._probed(row, how)
        if row.kind is StepKind.TX:
            return (
                self._failed(row, "fatal")
                if reaches and leaf.fate == "no"
                else Succeeded(row.name, row.fence, None, row.iteration)
                if how in {"ok", "freeze"}
                else self._failed(row, "retry")
            )
        said = reaches and leaf.fate != "no" and not self._poor(leaf, row)
        said = said and self.outside.do(key, dedupes=leaf.repeat is Repeat.SAFE)
        if how not in {"ok", "freeze"}:
            return self._reported(row, self._failed(row, how if how in {"retry", "not_sent"} else "unknown"))
        if said:
            return self._reported(
                row, Succeeded(row.name, row.fence, {"id": row.iteration or "x"}, row.iteration)
            )
        poor = self._poor(leaf, row) and not row.doubt
        return self._reported(row, self._failed(row, "quality" if poor else "fatal"))

    def _poor(self, leaf: Leaf, row: Step) -> bool:
        return leaf.fate == "poor" and row.iteration.rpartition(".")[2] == "1"

    def _failed(self, row: Step, verdict: Any) -> TryFailed:
        return TryFailed(
            row.name, row.fence, verdict, f"CODE_{verdict}".upper(), "said so", iteration=row.iteration
        )

    def _reported(self, row: Step, fact: Succeeded | TryFailed) -> Fact:
        """A settling repeat reports what a probe would."""
        if row.state is not StepState.RECONCILING:
            return fact
        if isinstance(fact, Succeeded):
            return Probed(row.name, row.fence, ProbeFound(fact.result), row.iteration)
        failed = fact.verdict == "fatal"
        answer = ProbeFailed(fact.code) if failed else ProbeError(fact.code, fact.message)
        return Probed(row.name, row.fence, answer, row.iteration)

    def _undone(self, row: Step, how: How, *, reaches: bool) -> Fact:
        assert row.undo_of is not None
        by_command = self.leaves[row.undo_of].kind == "command"
        if reaches and not by_command:
            self.outside.undo((row.undo_of, row.iteration))
        if how in {"ok", "freeze"}:
            return Succeeded(row.name, row.fence, None, row.iteration, awaits_reply=by_command)
        return self._failed(row, how if how in {"retry", "not_sent"} else "unknown")

    def _probed(self, row: Step, how: How) -> Fact:
        """Ask truthfully."""
        key = (row.name, row.iteration)
        if how not in {"ok", "freeze"}:
            return Probed(row.name, row.fence, ProbeError("TIMEOUT", ""), row.iteration)
        if row.kind is StepKind.WAIT:
            there = self.leaves[row.name].fate == "ok"
            wait = ProbeFound({"id": "o-1"}) if there else ProbeFailed("NEVER")
            return Probed(row.name, row.fence, wait, row.iteration)
        found = {"truck": "t"} if row.kind is StepKind.COMMAND else {"id": row.iteration or "x"}
        answer = ProbeFound(found) if self.outside.effects[key] else ProbeAbsent()
        return Probed(row.name, row.fence, answer, row.iteration)

    # --- persons ---------------------------------------------------------------------------------------

    def held(self) -> list[Step]:
        """Rows in front of a person."""
        return [s for s in self.run.steps if s.state is StepState.MANUAL_REQUIRED]

    def person(self, row: Step, wish: Literal["retry", "skip", "compensate"]) -> bool:
        """Let a person look at what happened, and decide; returns whether that was possible.

        Who turns the run round says so of everything that stands in front of a person: what did happen comes first.
        """
        if wish == "compensate":
            row = next((one for one in self.held() if self.outside.effects[one.name, one.iteration]), row)
        key = (row.name, row.iteration)
        wish = (
            "retry" if self.run.cause is not None else wish
        )  # a run that stops only has to know what happened
        if self.outside.effects[key]:
            result = {"truck": "t"} if row.kind is StepKind.COMMAND else {"id": row.iteration or "x"}
            given = None if row.kind is StepKind.TX else result
            act = Act("mark_succeeded", "ann", "I looked", *key[:1], result=given, iteration=row.iteration)
        else:
            act = Act(wish, "ann", "I looked", row.name, did_not_happen=True, iteration=row.iteration)
        changed = self.apply(act).answer == "changed"
        self.told = self.told or changed
        return changed
