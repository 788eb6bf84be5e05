"""States of runs, steps, waits and signals, and which of them are live."""

from __future__ import annotations

from enum import IntEnum, StrEnum


class RunState(StrEnum):
    """State of one execution of a saga."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    WAITING = "WAITING"
    SUCCEEDED = "SUCCEEDED"
    PARTIALLY_SUCCEEDED = "PARTIALLY_SUCCEEDED"
    FAILED = "FAILED"
    COMPENSATING = "COMPENSATING"
    COMPENSATED = "COMPENSATED"
    COMPENSATION_FAILED = "COMPENSATION_FAILED"
    MANUAL_REQUIRED = "MANUAL_REQUIRED"
    CANCEL_REQUESTED = "CANCEL_REQUESTED"
    CANCELLED = "CANCELLED"
    EXPIRED = "EXPIRED"


class Priority(StrEnum):
    """How soon a run's work is taken by the workers of its queue."""

    HIGH = "HIGH"
    NORMAL = "NORMAL"
    LOW = "LOW"

    @property
    def rank(self) -> int:
        """0 for what comes first."""
        return _RANKS[self]


_RANKS = {priority: rank for rank, priority in enumerate(Priority)}


class Risk(StrEnum):
    """How much may go wrong. HIGH waits for a person's approval, CRITICAL for those of two different persons."""

    LOW = "LOW"
    MEDIUM = "MEDIUM"
    HIGH = "HIGH"
    CRITICAL = "CRITICAL"

    @property
    def approvals(self) -> int:
        """How many persons have to approve an undo of that risk: 0, 1 or 2."""
        return {Risk.HIGH: 1, Risk.CRITICAL: 2}.get(self, 0)


class Level(IntEnum):
    """What a repair takes: the higher, the less of it goes by itself.

    DETECT: nothing is changed. SYNCHRONISE: our own record follows what is known. SAFE_RETRY: what may be repeated is
    repeated, under its own key. BOUNDED_REPAIR: something is changed that a rule allows, once and within bounds.
    APPROVAL: a person has to agree. PERSON: only a person does it.
    """

    DETECT = 0
    SYNCHRONISE = 1
    SAFE_RETRY = 2
    BOUNDED_REPAIR = 3
    APPROVAL = 4
    PERSON = 5


class StepState(StrEnum):
    """State of one step, wait or undo of a run."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    RETRY_PENDING = "RETRY_PENDING"
    UNKNOWN = "UNKNOWN"
    RECONCILING = "RECONCILING"
    WAITING = "WAITING"
    SKIPPED = "SKIPPED"
    MANUAL_REQUIRED = "MANUAL_REQUIRED"
    CANCELLED = "CANCELLED"
    COMPENSATION_PENDING = "COMPENSATION_PENDING"
    COMPENSATING = "COMPENSATING"
    COMPENSATED = "COMPENSATED"
    COMPENSATION_FAILED = "COMPENSATION_FAILED"


class StepKind(StrEnum):
    """What a step row stands for."""

    STEP = "STEP"
    TX = "TX"
    WAIT = "WAIT"
    UNDO = "UNDO"
    CHOICE = "CHOICE"
    LOOP = "LOOP"
    TIMER = "TIMER"
    COMMAND = "COMMAND"
    APPROVAL = "APPROVAL"
    CHILD = "CHILD"
    EACH = "EACH"


class ItemState(StrEnum):
    """State of one item of a fan-out."""

    PENDING = "PENDING"
    STARTED = "STARTED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class LetterStatus(StrEnum):
    """How a dead letter stands; RETRY_PENDING is asked for and not carried out yet."""

    OPEN = "OPEN"
    RETRY_PENDING = "RETRY_PENDING"
    RESOLVED = "RESOLVED"
    IGNORED = "IGNORED"


#: How a run ends that has done what it was started for.
WELL_ENDED = frozenset({RunState.SUCCEEDED, RunState.PARTIALLY_SUCCEEDED})
FINAL_RUN_STATES = WELL_ENDED | frozenset(
    {RunState.FAILED, RunState.COMPENSATED, RunState.CANCELLED, RunState.EXPIRED}
)
FINAL_STEP_STATES = frozenset(
    {StepState.SUCCEEDED, StepState.FAILED, StepState.SKIPPED, StepState.CANCELLED, StepState.COMPENSATED}
)
#: States in which a worker holds the step under a fence.
HELD_STEP_STATES = frozenset({StepState.RUNNING, StepState.RECONCILING, StepState.COMPENSATING})
