"""Proposals as they stand: what an agent or the system may not do alone, as a row that a person decides on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg

from ..schemas.states import Risk, RunState
from ..streams.queries import Queries
from .permissions import ActorKind, Scope

#: Acts on a run that can be proposed, and those on a letter. What only a person may decide cannot be.
OF_RUNS = frozenset({"retry", "skip", "mark_succeeded", "compensate", "resume", "cancel"})
OF_LETTERS = frozenset({"redrive", "ignore"})


#: States in which a run goes forward; which of them follows from its other steps.
_FORWARD = frozenset({RunState.PENDING, RunState.RUNNING, RunState.WAITING, RunState.MANUAL_REQUIRED})


class Sql(Queries, file="proposals.sql"):
    """Queries of proposals."""

    insert: str
    same: str
    clear_old: str
    proposals: str
    lock: str
    decide: str
    letter: str
    accepted: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A proposal as it stands.

    Attributes:
        subject: What it is about, for people: "order/o-1 charge_card", "letter 9".
        needed: How many persons have to agree, the one who accepts included.
        seen: What it rests on: what `rests_on` says of its step, or the run's version, or a letter's status and tries.
        state: OPEN, ACCEPTED, REJECTED, EXPIRED, or STALE when what it is about has changed.
        request: The request that carries it out, once accepted.
        outcome: What became of it, once known.
    """

    id: UUID
    tenant: str
    service: str
    saga: str | None
    run_id: UUID | None
    step: str | None
    iteration: str
    letter: int | None
    subject: str
    drift: str
    observed: Mapping[str, Any]
    expected: Mapping[str, Any]
    act: str
    arguments: Mapping[str, Any]
    risk: Risk
    idempotent: bool
    rollback: str
    needed: int
    seen: str
    by: str
    kind: ActorKind
    reason: str
    evidence: Mapping[str, Any]
    at: datetime
    expires_at: datetime
    state: str
    decided_by: str | None
    decided_at: datetime | None
    decision_reason: str | None
    request: UUID | None
    outcome: str | None


def rests_on(run: str, step: str, *, fence: int, probes: int) -> str:
    """Return what a proposal about a step rests on: it changes when the step was tried or settled, or its run turned.

    A probe that has learned nothing leaves it as it was, and so does what goes on beside the step.

    Args:
        run: State of the run.
        step: State of the step.
    """
    way = "FORWARD" if run in _FORWARD else run
    return f"{way}/{'UNKNOWN' if step == 'RECONCILING' else step}/{fence - probes}"


async def proposals(
    connection: asyncpg.Connection[Any],
    scope: Scope,
    *,
    id: UUID | None = None,
    run: UUID | None = None,
    by: str | None = None,
    only_open: bool = False,
    limit: int = 100,
) -> list[Proposal]:
    """List proposals, the youngest first.

    Args:
        scope: What may be seen.
        id: Only this one.
        only_open: Only those that can be decided on.
        limit: At most so many.
    """
    rows = await connection.fetch(Sql.proposals, id, run, by, *scope.parameters(), only_open, limit)
    found = [_proposal(row) for row in rows]
    return [one for one in found if one.state == "OPEN"] if only_open else found


def _proposal(row: asyncpg.Record) -> Proposal:
    plain = (
        *(
            "id",
            "tenant",
            "service",
            "saga",
            "run_id",
            "step",
            "iteration",
            "letter",
            "subject",
            "drift",
            "act",
        ),
        *("idempotent", "rollback", "needed", "seen", "by", "reason", "at", "expires_at", "decided_by"),
        *("decided_at", "decision_reason", "request"),
    )
    parts = ("observed", "expected", "arguments", "evidence")
    outcome = row["outcome"] if row["request_state"] is None else _request_words(row)
    return Proposal(
        **{name: row[name] for name in plain},
        **{name: json.loads(row[f"{name}_text"]) for name in parts},
        risk=Risk(row["risk"]),
        kind=ActorKind(row["kind"]),
        state="STALE" if row["stands"] == "OPEN" and _changed(row) else row["stands"],
        outcome=outcome,
    )


def _changed(row: asyncpg.Record) -> bool:
    """Whether what an open proposal is about is another one by now."""
    if row["letter"] is not None:
        found: str | None = row["letter_seen"]
    elif row["run_id"] is None or row["act"] == "reconcile":
        return False
    elif row["step"] is None or row["seen"].isdigit() or row["step_state"] is None:
        found = row["version"]
    else:
        found = rests_on(row["run_state"], row["step_state"], fence=row["fence"], probes=row["probes"])
    return bool(row["seen"] != found)


def _request_words(row: asyncpg.Record) -> str:
    words = {"OPEN": "asked for", "HELD": "waits for a second person"}
    return words.get(row["request_state"]) or f"{row['request_state'].lower()}: {row['answer']}"
