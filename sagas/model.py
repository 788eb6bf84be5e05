"""What the state machine reads and writes: a run with its steps, and the decision.

`decide(definition, run, fact, now)` in `decide.py` answers a fact (facts.py) with a decision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias
from uuid import UUID

from ..schemas.states import Priority, RunState, StepKind, StepState

Json: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class Child:
    """What is known of the run that a row of kind CHILD waits for.

    Attributes:
        id: The child's run; '' when it was never started.
        key: Its business key.
        state: How it has ended; '' while it is under way.
        code: Why it was not started, or is not waited for any more.
    """

    id: str = ""
    key: str = ""
    state: str = ""
    code: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Fan:
    """How the items of a fan-out stand.

    Attributes:
        attempt: Attempt of the row in which its items were last given out.
        next: Number of the first item that has not been given out in this attempt.
        started: Items under way.
    """

    attempt: int
    total: int
    next: int
    started: int
    succeeded: int
    failed: int

    @property
    def over(self) -> bool:
        """Whether every item has been given out and has ended."""
        return self.next >= self.total and not self.started


@dataclass(frozen=True, kw_only=True)
class Step:
    """One row of milepost.step.

    Attributes:
        name: The step's, wait's or undo's own name.
        undo_of: For an undo, the step it undoes.
        attempt: Tries begun so far.
        fence: Rises with every claim; a finish with another fence changes nothing.
        generation: Rises whenever wake_at is set anew by a decision; a timer of another generation is stale.
        worker: Who holds it while RUNNING, RECONCILING or COMPENSATING.
        doubt: Some try may have taken effect without anybody knowing.
        doubt_at: When the doubted try's lease ended; Absent counts only `settle` after it.
        finish_no: Order of completion within the run.
        probes: Probes asked since the outcome became unknown.
        nudges: Times that the work was announced again.
        since: When the present state began.
        first_at: When the first try began.
        signal: Payload of the signal that its wait was matched with, if any; only loaded, never stored here.
        signal_version: Version of that payload; None for that of the wait's class.
        spent: What its tries have spent, as budgets.py writes it.
        granted: What persons have granted beyond its budget and its run's.
        spending: What the present try said with a heartbeat that it has spent; only loaded, never stored here.
        limited_until: Until when a rate limit asked it to wait; None when none did since it was last begun.
        progress: How far the last try said it had come; only loaded, never stored here.
        asked: What persons are asked to approve, and what they have said so far (questions.py); None for nothing.
        child: What is known of the run that it waits for; only loaded, never stored here.
        fan: How its items stand; only loaded, never stored here.
    """

    name: str
    kind: StepKind
    state: StepState
    since: datetime
    iteration: str = ""
    undo_of: str | None = None
    queue: str = "default"
    attempt: int = 0
    fence: int = 0
    generation: int = 0
    worker: UUID | None = None
    wake_at: datetime | None = None
    doubt: bool = False
    doubt_at: datetime | None = None
    result: Json = None
    code: str | None = None
    message: str | None = None
    finish_no: int | None = None
    probes: int = 0
    nudges: int = 0
    first_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    limited_until: datetime | None = None
    spent: Json = None
    granted: Json = None
    spending: Json = None
    signal: Mapping[str, Json] | None = None
    signal_version: int | None = None
    progress: Json = None
    asked: Json = None
    child: Child | None = None
    fan: Fan | None = None


@dataclass(frozen=True, kw_only=True)
class Run:
    """One row of milepost.run with its step rows, in the order in which they came to be.

    Attributes:
        version: Compare-and-set version as loaded; the store raises it.
        shape: Fingerprint of its definition's shape; '' where it is not known.
        policy: Fingerprint of the policy that its definition had when the run was made.
        input_version: Version of the stored input.
        code: Why the run waits for a person, or failed.
        cause: Code of the error or timeout that made the run stop going forward.
        history_n: Number of history rows so far.
        finish_n: Number of finishes so far.
        deadline_at: When it has to stop, as computed from its input at the start.
        active_for: How long it has been PENDING or RUNNING, until `active_since`; only counted where its definition
            limits that time.
        active_since: Since when it has been so; None while it is not, or where nothing is counted.
        resource: Name of the lock that it was started with; None for none.
        holds: Whether it has the lock now; only loaded, never stored here.
        queued_since: Since when it stands in the lock's queue, if it does; only loaded, never stored here.
        moved_at: When the database became another one, a standby or a restored backup, the last time since the run was
            made; None while it is the one in which it was made. Only loaded, never stored here.
        priority: How soon its work is taken; fixed at its start, never stored again.
        no_undo: It stops because of a failure after which nothing is to be undone.
        watched: Some other run waits for its end, and is to be told.
    """

    id: UUID
    tenant: str
    saga: str
    key: str
    definition: int
    input: Json
    state: RunState
    correlation_id: str
    shape: str = ""
    policy: str = ""
    input_version: int = 1
    code: str | None = None
    cause: str | None = None
    version: int = 0
    history_n: int = 0
    finish_n: int = 0
    wake_at: datetime | None = None
    deadline_at: datetime | None = None
    active_for: timedelta = timedelta(0)
    active_since: datetime | None = None
    resource: str | None = None
    holds: bool = False
    queued_since: datetime | None = None
    moved_at: datetime | None = None
    finished_at: datetime | None = None
    traceparent: str | None = None
    priority: Priority = Priority.NORMAL
    no_undo: bool = False
    watched: bool = False
    steps: tuple[Step, ...] = ()

    def step(self, name: str, iteration: str = "") -> Step | None:
        """Return the step row of that name, or None while it does not exist."""
        for step in self.steps:
            if step.name == name and step.iteration == iteration:
                return step
        return None


# --- decisions --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Work:
    """Announce the step row on its queue's work topic (`lane` 'work') or compensation topic."""

    step: str
    lane: Literal["work", "compensation"]
    queue: str
    iteration: str = ""


@dataclass(frozen=True, slots=True)
class OpenWait:
    """Register the wait; an earlier unmatched signal of (type, key) is matched in the same transaction."""

    step: str
    generation: int
    type: str
    key: str
    broadcast: bool
    iteration: str = ""


@dataclass(frozen=True, slots=True)
class CloseWait:
    """End the wait of this generation; if it has been matched meanwhile, the decision must be taken anew."""

    step: str
    generation: int
    iteration: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """One history row; `event` as in requirement S16 (run.started, step.completed, timer.stale …)."""

    event: str
    step: str | None = None
    iteration: str = ""
    attempt: int | None = None
    data: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Settled:
    """One reconciliation row: what an unknown outcome turned out to be, and on what evidence."""

    step: str
    before: str
    evidence: Mapping[str, Json]
    decision: Literal["NONE", "MARK_AS_SUCCESS", "RETRY", "ESCALATE", "FAIL"]
    after: str
    reason: str
    iteration: str = ""


@dataclass(frozen=True, slots=True)
class Send:
    """A command to a participant; `command` is the user's event, and the row's name and iteration the operation."""

    step: str
    attempt: int
    command: Any
    iteration: str = ""


@dataclass(frozen=True, slots=True)
class Said:
    """One approval row: what a person said to a question, of which generation and about which parameters.

    Attributes:
        hash: SHA-256 of the canonical JSON of the parameters, in hexadecimal digits.
        roles: Those that the person claimed.
    """

    step: str
    iteration: str
    generation: int
    hash: str
    by: str
    roles: tuple[str, ...]
    approved: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Seek:
    """Have somebody look after the child of a row, or its items: start, stop, or see that they have ended."""

    step: str
    iteration: str = ""


Answer: TypeAlias = Literal["changed", "ignored", "refused"]

#: enter = it stands in the queue from now on; ask = whoever is first may have the lock, if nobody has it;
#: leave = it is final: its lock goes to the next, or it leaves the queue.
LockAct: TypeAlias = Literal["enter", "ask", "leave"]


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What follows from a fact.

    Attributes:
        answer: changed = store it; ignored = right but late or repeated (store the history rows, if any);
            refused = illegal in this state, nothing is stored but the history rows.
        reason: Why ignored or refused; when changed '', or why what a person asked for was not done nevertheless.
        run: The run as it is to be, steps included (`version` untouched: the store raises it).
        changed: Step rows to insert or update.
        work: Messages to announce.
        sends: Commands to send.
        seeks: Rows whose children are to be looked after.
        claimed: The step row that this decision gave to a worker, when the fact was a Claim.
        lock: What is to be done about the run's lock in the same transaction, if anything.
    """

    answer: Answer
    run: Run
    reason: str = ""
    changed: tuple[Step, ...] = ()
    history: tuple[Entry, ...] = ()
    work: tuple[Work, ...] = ()
    sends: tuple[Send, ...] = ()
    seeks: tuple[Seek, ...] = ()
    opens: tuple[OpenWait, ...] = ()
    closes: tuple[CloseWait, ...] = ()
    settled: tuple[Settled, ...] = ()
    said: tuple[Said, ...] = ()
    claimed: Step | None = None
    lock: LockAct | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Times that the deployment sets, not the definition.

    Attributes:
        nudge: First wait before an unclaimed step is announced again; doubles up to nudge_cap.
        slack: Added to attempt_timeout for a RUNNING step's hard timeout.
        reminder: How often a person is reminded.
        sweep: How often an otherwise silent run is looked at.
        unsendable: Says what keeps a command from being sent, such as its size, or ''.
    """

    nudge: timedelta = timedelta(seconds=10)
    nudge_cap: timedelta = timedelta(minutes=10)
    slack: timedelta = timedelta(seconds=30)
    reminder: timedelta = timedelta(days=1)
    sweep: timedelta = timedelta(days=1)
    unsendable: Callable[[Any], str] = lambda command: ""
