"""Carrying a plan out: on condition that what was observed is still so, in one transaction with the rows that say so.

A repair is nothing new: a row is woken and its state machine decides, a letter is asked for, a lock is passed on as its
owner would have done, a run is started. So a process that is killed has done all of it or nothing, and of two that
decide the same at once one does it.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Protocol, TypeAlias
from uuid import UUID

import asyncpg

from ..inbox import asking
from ..outbox.unpark import ask_relay
from ..sagas.model import Json
from ..schemas.errors import StateError
from ..schemas.ids import Ids
from ..streams.queries import Queries
from .model import Action, Drift, Observation, Outcome, Plan, Reconciled
from .observers import told_as
from .permissions import ActorKind


class Sql(Queries, file="executor.sql"):
    """Queries of this module, and of passes."""

    now: str
    hardly_wait: str
    insert_reconciliation: str
    insert_audit: str
    wake_step: str
    wake_run: str
    wake_next: str
    lock_name: str
    give_back: str
    lock_hold: str
    release_hold: str
    letter_unchanged: str
    make_reconciler: str
    lead: str
    passed: str
    take_inspection: str


Connection: TypeAlias = "asyncpg.Connection[Any]"


class Proposals(Protocol):
    """Where plans wait that a person has to agree to."""

    async def propose(
        self, connection: Connection, seen: Observation, plan: Plan, *, by: str, reconciliation: UUID
    ) -> UUID | None:
        """Write a proposal in the open transaction; None when it cannot be one, and persons are only told."""
        ...

    async def agreed(self, connection: Connection, seen: Observation, plan: Plan) -> str | None:
        """Return who has agreed to a plan for a thing as it was seen; None when nobody has."""
        ...


class Repairs(Protocol):
    """What a service itself does about what it inspects."""

    async def repair(self, connection: Connection, seen: Observation, action: Action) -> str | None:
        """Begin a repair in the open transaction; return what was begun, for people, or None when there is none."""
        ...


@dataclass(frozen=True, kw_only=True)
class Executor:
    """Carries plans out.

    Attributes:
        by: Who does so, for the record: "reconciler" for the service itself, else a person.
        kind: What that is.
        asked: Why a person has asked for it, kept with what is decided; '' where nobody has.
        proposals: None: persons are told instead.
        repairs: None: nothing that is inspected can be repaired here.
        dry_run: Do everything and take it back, so that what is told is what would have happened.
    """

    ids: Ids
    by: str = "reconciler"
    kind: ActorKind = ActorKind.SYSTEM
    asked: str = ""
    proposals: Proposals | None = None
    repairs: Repairs | None = None
    dry_run: bool = False

    async def decide(
        self, connection: Connection, seen: Observation, plan: Plan, *, alone: bool
    ) -> Reconciled:
        """Carry a plan out: by itself where it may go alone or a person has agreed to it, else ask a person.

        Args:
            alone: Without asking anybody.
        """
        if alone or plan.action in {Action.NONE, Action.ESCALATE} or self.proposals is None:
            return await self.carry_out(connection, seen, plan, alone=alone)
        person = await self.proposals.agreed(connection, seen, plan)
        if person is None:
            return await self.carry_out(connection, seen, plan, alone=False)
        agreed = replace(self, by=person, kind=ActorKind.PERSON)
        return await agreed.carry_out(connection, seen, plan, alone=True)

    def repairing(self, repairs: Repairs) -> Executor:
        """Return one that repairs what is inspected in this way."""
        return replace(self, repairs=repairs)

    async def carry_out(
        self, connection: Connection, seen: Observation, plan: Plan, *, alone: bool
    ) -> Reconciled:
        """Carry a plan out in a transaction of its own.

        Args:
            alone: Without asking anybody; else a person is asked.
        """
        if plan.action is Action.NONE:
            return Reconciled(seen, plan, Outcome.NOTHING)
        asks = plan.action is not Action.ESCALATE and not alone
        if (asks or plan.action is Action.ESCALATE) and seen.escalated:
            return Reconciled(seen, plan, Outcome.ALREADY)
        try:
            async with connection.transaction(isolation="read_committed"):
                await connection.execute(Sql.hardly_wait)
                done = await self._done(connection, seen, plan, asks=asks)
                if done.id is None or self.dry_run:
                    raise _TakenBack(done)
                return done
        except _TakenBack as back:
            return back.done
        except (asyncpg.LockNotAvailableError, StateError):
            return Reconciled(seen, plan, Outcome.MOVED)  # somebody is at work on it, or has been

    async def _done(self, connection: Connection, seen: Observation, plan: Plan, *, asks: bool) -> Reconciled:
        written = self.ids.new()
        if asks:
            return await self._ask(connection, seen, plan, written)
        if plan.action is Action.ESCALATE:
            return await self._escalate(connection, seen, plan, written)
        after = await self._repair(connection, seen, plan.action)
        if after is None:
            return Reconciled(seen, plan, Outcome.MOVED)
        row = _Row(written, plan.action.value, seen.observed, after)
        kept = await self._keep(connection, seen, plan, row)
        outcome = Outcome.REPAIRED if kept else Outcome.ALREADY
        return Reconciled(seen, plan, outcome, written if kept else None, after)

    async def _ask(self, connection: Connection, seen: Observation, plan: Plan, id: UUID) -> Reconciled:
        if self.proposals is None:
            return await self._escalate(connection, seen, plan, id)
        row = _Row(id, f"PROPOSE {plan.action.value}", told_as(seen), seen.state)
        if not await self._keep(connection, seen, plan, row):
            return Reconciled(seen, plan, Outcome.ALREADY)
        proposal = await self.proposals.propose(connection, seen, plan, by=self.by, reconciliation=id)
        outcome = Outcome.ESCALATED if proposal is None else Outcome.PROPOSED
        return Reconciled(seen, plan, outcome, id, seen.state, proposal)

    async def _escalate(self, connection: Connection, seen: Observation, plan: Plan, id: UUID) -> Reconciled:
        row = _Row(id, Action.ESCALATE.value, told_as(seen), seen.state)
        if not await self._keep(connection, seen, plan, row):
            return Reconciled(seen, plan, Outcome.ALREADY)
        return Reconciled(seen, plan, Outcome.ESCALATED, id, seen.state)

    async def _repair(self, connection: Connection, seen: Observation, action: Action) -> str | None:
        """Repair it; return how it stands then, or None when it is not as it was observed."""
        if seen.drift is Drift.INSPECTED:
            return None if self.repairs is None else await self.repairs.repair(connection, seen, action)
        if seen.drift in _OF_LETTERS:
            return await self._ask_for_letter(connection, seen)
        return await _REPAIR[seen.drift](connection, seen)

    async def _ask_for_letter(self, connection: Connection, seen: Observation) -> str | None:
        row, reason = seen.row, "reconciled: its first letter is tried again"
        if not await connection.fetchval(Sql.letter_unchanged, row["n"], row["attempts"], row["code"]):
            return None
        if seen.drift is Drift.OUTBOX_PARKED:
            asked = await ask_relay(connection, UUID(row["id"]), by=self.by, reason=reason, ids=self.ids)
            return "RETRY_PENDING" if asked.outcome == "ASKED" else None
        answer = await asking.redrive(connection, row["n"], by=self.by, reason=reason, ids=self.ids)
        return "RETRY_PENDING" if answer.outcome == "ASKED" else None

    async def _keep(self, connection: Connection, seen: Observation, plan: Plan, row: _Row) -> bool:
        """Write what was decided, and the audit's entry of it; False when the same was decided before."""
        asked = {"asked": self.asked} if self.asked else {}
        evidence = json.dumps(record_of(seen, plan) | asked)
        step, level = seen.step or "", int(plan.level)
        named = (seen.tenant, seen.service, seen.run, step, seen.iteration)
        found = (seen.state, evidence, row.decision, row.after, self.by, plan.reason, seen.correlation_id)
        about = (seen.drift.value, seen.subject, row.observed, level)
        if not await connection.fetchval(Sql.insert_reconciliation, row.id, *named, *found, *about):
            return False
        act = "reconcile." + row.decision.lower().replace(" ", "_")
        states = (json.dumps({"state": seen.state}), json.dumps({"state": row.after}))
        who = (seen.tenant, self.by, self.kind.value, act, seen.run, seen.step)
        await connection.execute(Sql.insert_audit, row.id, *who, plan.reason, *states, evidence)
        return True


@dataclass(frozen=True, slots=True)
class _Row:
    id: UUID
    decision: str
    observed: str
    after: str


class _TakenBack(Exception):
    def __init__(self, done: Reconciled) -> None:
        self.done = done


def record_of(seen: Observation, plan: Plan) -> dict[str, Json]:
    """Return what a decision rested on, as JSON."""
    said: Mapping[str, Json] = {
        "drift": seen.drift.value,
        "subject": seen.subject,
        "what": seen.label,
        "observed": seen.observed,
        "since": seen.since.isoformat(),
        "level": int(plan.level),
    }
    return {**said, **seen.evidence, **plan.evidence}


async def _wake_step(connection: Connection, seen: Observation) -> str | None:
    named = (seen.run, seen.step, seen.iteration, seen.state, seen.row["fence"], seen.row["generation"])
    woken = await connection.fetchval(Sql.wake_step, *named, seen.drift.value)
    return f"{seen.state}, due now" if woken else None


async def _wake_undo(connection: Connection, seen: Observation) -> str | None:
    if seen.step is not None:
        return await _wake_step(connection, seen)
    woken = await connection.fetchval(Sql.wake_run, seen.run, seen.row["version"], seen.state)
    return f"{seen.state}, due now" if woken else None


async def _release_lock(connection: Connection, seen: Observation) -> str | None:
    lock, following = seen.row["lock"], seen.row["next"]
    if following is not None:
        woken = await connection.fetchval(Sql.wake_next, seen.tenant, lock, seen.run, UUID(following))
        return f"passed on to {following}" if woken else None
    await connection.execute(Sql.lock_name, seen.tenant, lock)
    return "released" if await connection.fetchval(Sql.give_back, seen.tenant, lock, seen.run) else None


async def _release_key(connection: Connection, seen: Observation) -> str | None:
    place = (seen.row["scope"], seen.row["topic"], bytes.fromhex(seen.row["key"]))
    if not await connection.fetchval(Sql.lock_hold, *place, datetime.fromisoformat(seen.observed)):
        return None
    return "released" if await connection.fetchval(Sql.release_hold, *place) else None


_OF_LETTERS = frozenset({Drift.LETTER_OPEN, Drift.OUTBOX_PARKED})
_REPAIR: Mapping[Drift, Callable[[Connection, Observation], Awaitable[str | None]]] = {
    Drift.WORKER_LOST: _wake_step,
    Drift.NOT_TOLD: _wake_step,
    Drift.SIGNAL_PRESENT: _wake_step,
    Drift.UNKNOWN: _wake_step,
    Drift.UNDO_STOPPED: _wake_undo,
    Drift.LOCK_LEFT: _release_lock,
    Drift.KEY_HELD: _release_key,
}
