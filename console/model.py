"""Rows as operators see them, and the words made of them. Pure: no clock, no driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID

from ..schemas.errors import UsageError
from ..schemas.states import FINAL_RUN_STATES, HELD_STEP_STATES, RunState, StepKind, StepState
from .locks import LockLine

_HEX = frozenset("0123456789abcdef")
#: Fewest hexadecimal digits that are taken as the beginning of a run's id.
SHORTEST_PREFIX = 4


@dataclass(frozen=True, slots=True)
class ByKey:
    """A run named by its saga and key."""

    saga: str
    key: str


@dataclass(frozen=True, slots=True)
class ByPrefix:
    """A run named by its id or the beginning of it: all ids from `low` to `high`."""

    low: UUID
    high: UUID


def run_reference(text: str) -> ByKey | ByPrefix:
    """Read what a person calls a run.

    Args:
        text: "order/o-1", an id, or its first characters; a trailing ellipsis is ignored.

    Raises:
        UsageError: MP605 when it is none of them.
    """
    saga, slash, key = text.partition("/")
    if slash and saga and key:
        return ByKey(saga, key)
    digits = text.lower().rstrip("….").replace("-", "")
    if SHORTEST_PREFIX <= len(digits) <= 32 and _HEX.issuperset(digits):
        return ByPrefix(UUID(hex=digits.ljust(32, "0")), UUID(hex=digits.ljust(32, "f")))
    raise UsageError(
        "MP605",
        f"RUN {text!r} is neither SAGA/KEY, such as order/o-1, nor the beginning of a run's id "
        f"({SHORTEST_PREFIX} hexadecimal digits or more).",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLine:
    """A run in a list.

    Attributes:
        step: The step row that is live now, if any.
        since: When its state began; for a finished run, when that was.
        now: The database's clock.
    """

    id: UUID
    tenant: str
    service: str
    saga: str
    key: str
    state: RunState
    code: str | None
    cause: str | None
    correlation_id: str
    created_at: datetime
    finished_at: datetime | None
    step: str | None
    step_state: StepState | None
    since: datetime
    now: datetime

    @property
    def run(self) -> str:
        """What a person calls it."""
        return f"{self.saga}/{self.key}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLine:
    """A row of milepost.step.

    Attributes:
        worker: Name of who holds it, else its id, else None.
        probes: Probes asked since its outcome became unknown.
        probed: Whether a probe was ever asked, as the reconciliation rows tell.
        items: Of a fan-out that has its list, how many items there are, and have succeeded, failed, and are under way.
    """

    name: str
    iteration: str
    kind: StepKind
    state: StepState
    undo_of: str | None
    queue: str
    attempt: int
    probes: int
    probed: bool
    doubt: bool
    code: str | None
    message: str | None
    worker: str | None
    wake_at: datetime | None
    since: datetime
    started_at: datetime | None
    finished_at: datetime | None
    items: Mapping[str, int] | None = None

    @property
    def label(self) -> str:
        """Its name, with the iteration where there is one."""
        return f"{self.name}#{self.iteration}" if self.iteration else self.name

    @property
    def state_words(self) -> str:
        """What follows the state: only a failure that may have taken effect needs words."""
        return " (outcome in doubt)" if self.state is StepState.FAILED and self.doubt else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryLine:
    """A row of milepost.history."""

    n: int
    at: datetime
    event: str
    step: str | None
    iteration: str
    attempt: int | None
    data: Mapping[str, Any]

    @property
    def label(self) -> str:
        """The step that it tells of, with the iteration where there is one."""
        return f"{self.step}#{self.iteration}" if self.iteration else self.step or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDetail:
    """A run with its steps in the order in which they came to be, and its history where asked for.

    Attributes:
        deadline_at: When it has to stop; None for never.
        active_for: How long it has been active; only counted where its saga limits that time.
    """

    id: UUID
    tenant: str
    service: str
    saga: str
    key: str
    definition: int
    state: RunState
    code: str | None
    cause: str | None
    correlation_id: str
    traceparent: str | None
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None
    wake_at: datetime | None
    deadline_at: datetime | None = None
    active_for: timedelta = timedelta(0)
    now: datetime
    lock: LockLine | None = None
    steps: Sequence[StepLine] = ()
    history: Sequence[HistoryLine] = ()

    @property
    def run(self) -> str:
        """What a person calls it."""
        return f"{self.saga}/{self.key}"

    @property
    def trace_id(self) -> str | None:
        """The trace's id: 32 hexadecimal digits of the stored traceparent (W3C Trace Context 1, 3.2)."""
        parts = (self.traceparent or "").split("-")
        return parts[1] if len(parts) == 4 and len(parts[1]) == 32 else None

    def active(self) -> StepLine | None:
        """Return the step that the run is at: the youngest live one."""
        return next((step for step in reversed(self.steps) if step.wake_at is not None), None)


@dataclass(frozen=True, slots=True)
class Lag:
    """How far the relay is behind.

    Attributes:
        rows: Committed rows that no position covers yet.
        oldest: Age of the oldest of them, None without any.
        epoch: Epoch of the relay's lease, None when no relay ever took it.
        leased: Whether a relay holds the lease now.
    """

    rows: int
    oldest: timedelta | None
    epoch: int | None
    leased: bool


@dataclass(frozen=True, slots=True)
class Unsent:
    """Committed events of one topic that the relay has put aside, for one reason.

    Attributes:
        code: TOPIC_MISSING, TOPIC_DENIED, TOO_LARGE or KEY_HELD.
        oldest: How long the oldest has been put aside.
    """

    topic: str
    code: str
    amount: int
    oldest: timedelta


@dataclass(frozen=True, slots=True)
class Plan:
    """What only the definition knows about a run; empty where the app is not given.

    Attributes:
        nodes: Names in the order of the flow.
        on_timeout: By wait, what follows its timeout.
        active_timeout: How long a run may be active in all.
    """

    nodes: Sequence[str] = ()
    on_timeout: Mapping[str, str] = field(default_factory=dict)
    active_timeout: timedelta | None = None

    def not_reached(self, run: RunDetail) -> list[str]:
        """Return the names of the flow that have no row yet."""
        present = {step.name for step in run.steps}
        return [name for name in self.nodes if name not in present]


#: Kinds of rows that wait for other runs: when they are looked after the next time says nothing about their end.
_LOOKED_AFTER = frozenset({StepKind.CHILD, StepKind.EACH})


def minute(instant: datetime) -> str:
    """Write an instant to the minute, as people read it: 2026-12-02 18:13Z."""
    return instant.strftime("%Y-%m-%d %H:%MZ")


def situation(run: RunDetail, plan: Plan, span: Any) -> str:
    """Say in a few words where a run stands.

    Args:
        run: The run.
        plan: What its definition adds.
        span: Writes a duration for people.
    """
    if run.state in FINAL_RUN_STATES:
        ended = run.finished_at or run.updated_at
        words = f"after {span(ended - run.created_at)}"
        why = run.cause or run.code
        return f"{words}, because of {why}" if why else words
    step = run.active()
    if step is None and run.lock is not None and not run.lock.held:
        return run.lock.waits
    if step is None:
        return f"since {minute(run.updated_at)}"
    if step.state is StepState.WAITING and step.wake_at is not None and step.kind not in _LOOKED_AFTER:
        follows = plan.on_timeout.get(step.name)
        left = step.wake_at - run.now
        soon = left < timedelta(hours=1)
        until = f"{step.wake_at:%Y-%m-%d %H:%M:%SZ}" if soon else minute(step.wake_at)
        notes = [f"in {span(left)}"] * soon + ([f"then {follows.upper()}"] if follows else [])
        return f"{step.label} until {until}" + (f" ({', '.join(notes)})" if notes else "")
    words = f"{step.label} {step.state}" if step.state != str(run.state) else step.label
    code = run.code or (step.code if step.state not in HELD_STEP_STATES else None)
    held = span(run.now - step.since)
    return f"{words} for {held}" + (f", {code}" if code else "")


def deltas(history: Sequence[HistoryLine]) -> list[timedelta | None]:
    """Return for each row the time since the row before it, None for the first."""
    return [None, *(later.at - earlier.at for earlier, later in pairwise(history))]
