"""What recovery speaks of: a drift, how it was observed, what is to be done about it, and what became of that. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from ..sagas.model import Json
from ..schemas.states import Level


class Drift(StrEnum):
    """How something may have come to stand still, or to differ from what it should be."""

    WORKER_LOST = "WORKER_LOST"  # a worker holds the row, and its lease has ended
    NOT_TOLD = "NOT_TOLD"  # work is announced, workers are there and idle, and nobody has claimed it
    SIGNAL_PRESENT = "SIGNAL_PRESENT"  # a wait waits although its event is there
    UNKNOWN = "UNKNOWN"  # nobody knows whether the effect happened
    UNDO_STOPPED = "UNDO_STOPPED"  # an undo failed, or nobody goes on with it
    LETTER_OPEN = "LETTER_OPEN"  # an event was parked, and nobody has looked after it
    KEY_HELD = "KEY_HELD"  # a key is held, so its later events wait
    OUTBOX_BEHIND = "OUTBOX_BEHIND"  # committed events do not leave
    OUTBOX_PARKED = "OUTBOX_PARKED"  # committed events that the relay has put aside
    WAIT_OLD = "WAIT_OLD"  # a wait goes on for long
    LOCK_LEFT = "LOCK_LEFT"  # a lock is held by a run that has ended
    INSPECTED = "INSPECTED"  # what the service looks at itself is not as desired


class Action(StrEnum):
    """What may be done about it."""

    NONE = "NONE"
    MARK_AS_SUCCESS = "MARK_AS_SUCCESS"
    RETRY = "RETRY"
    RESUME = "RESUME"
    RELEASE_LOCK = "RELEASE_LOCK"
    REBUILD = "REBUILD"
    ROLLBACK = "ROLLBACK"
    ESCALATE = "ESCALATE"


#: Actions that can be carried out, by what has drifted; NONE and ESCALATE can be for everything. Drifts of a run are
#: given back to its state machine, which alone decides what a retry is; of what is inspected, to the service's repairs.
CAN: Mapping[Drift, frozenset[Action]] = {
    Drift.WORKER_LOST: frozenset({Action.RETRY}),
    Drift.NOT_TOLD: frozenset({Action.RESUME}),
    Drift.SIGNAL_PRESENT: frozenset({Action.RESUME}),
    Drift.UNKNOWN: frozenset({Action.RETRY}),
    Drift.UNDO_STOPPED: frozenset({Action.RESUME}),
    Drift.LETTER_OPEN: frozenset({Action.RETRY}),
    Drift.KEY_HELD: frozenset({Action.RELEASE_LOCK}),
    Drift.OUTBOX_BEHIND: frozenset(),
    Drift.OUTBOX_PARKED: frozenset({Action.RETRY}),
    Drift.WAIT_OLD: frozenset(),
    Drift.LOCK_LEFT: frozenset({Action.RELEASE_LOCK}),
    Drift.INSPECTED: frozenset(
        {Action.MARK_AS_SUCCESS, Action.RETRY, Action.RESUME, Action.REBUILD, Action.ROLLBACK}
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A drift as it was seen.

    Attributes:
        subject: What has drifted, stable: "RUN_ID:charge_card", "consumer:billing/orders/HANDLER_FAILED".
        label: The same for people: "order/o-1 charge_card".
        observed: The version that was seen; a repair happens only while it is still that one.
        basis: What a plan that a person agrees to rests on, where that is less than the version: `agreed_to`.
        episode: What stays the same while the trouble lasts, though the version moves; a person is told once for it.
        since: Since when.
        now: When it was seen, by the database's clock.
        state: Of the row or the run, as it was seen.
        saga: None for what belongs to no run.
        step: Name of the step, wait or undo; None for the run itself and for what belongs to none.
        row: The rest of what a repair is conditional on, by name.
        evidence: What was seen, as JSON, for people and for the record; never what an event or a result says.
        asked: A person has asked for this run to be looked at.
        repaired_at: When this version of it was repaired before; None when it was not.
        escalated: Persons have been told of this episode.
    """

    drift: Drift
    subject: str
    label: str
    observed: str
    since: datetime
    now: datetime
    state: str
    basis: str = ""
    episode: str = ""
    service: str = ""
    tenant: str = ""
    saga: str | None = None
    run: UUID | None = None
    step: str | None = None
    iteration: str = ""
    correlation_id: str = ""
    row: Mapping[str, Json] = field(default_factory=dict)
    evidence: Mapping[str, Json] = field(default_factory=dict)
    asked: bool = False
    repaired_at: datetime | None = None
    escalated: bool = False

    @property
    def agreed_to(self) -> str:
        """What has to be as it was for a person's yes to hold."""
        return self.basis or self.observed

    @property
    def age(self) -> timedelta:
        """How long it has lasted when it was seen."""
        return max(self.now - self.since, timedelta(0))


@dataclass(frozen=True, slots=True)
class Plan:
    """What a policy says is to be done.

    Attributes:
        action: One of `CAN[drift]`, NONE or ESCALATE.
        level: What it takes. Above what the saga or the inspection lets go by itself, a person is asked.
        reason: Why, for people; kept with the row.
        evidence: What the decision rests on beside the observation's own.
    """

    action: Action
    level: Level
    reason: str
    evidence: Mapping[str, Json] = field(default_factory=dict)


class Outcome(StrEnum):
    """What became of a plan.

    REPAIRED: done. PROPOSED: a person is asked. ESCALATED: persons are told. MOVED: it is not as it was seen any more,
    so nothing was done. ALREADY: somebody has done so before. NOTHING: there was nothing to do.
    """

    REPAIRED = "REPAIRED"
    PROPOSED = "PROPOSED"
    ESCALATED = "ESCALATED"
    MOVED = "MOVED"
    ALREADY = "ALREADY"
    NOTHING = "NOTHING"


#: After a repair of the same version that has changed nothing for so long, persons are told.
PATIENCE = timedelta(minutes=5)
#: Outcomes that are rows of `milepost.reconciliation`.
DECIDED = frozenset({Outcome.REPAIRED, Outcome.PROPOSED, Outcome.ESCALATED})


@dataclass(frozen=True, slots=True)
class Reconciled:
    """One drift, what was decided about it, and what became of that.

    Attributes:
        id: Of the row of `milepost.reconciliation`; None where none was written.
        after: How it stands afterwards.
        proposal: The proposal that waits for a person; None where there is none.
    """

    observation: Observation
    plan: Plan
    outcome: Outcome
    id: UUID | None = None
    after: str = ""
    proposal: UUID | None = None
