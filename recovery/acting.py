"""Asking for an act: is it permitted, and then the request that carries it out; what is not let through is kept too.

Every surface comes through here (command line, pages, API, agents). The surface says who acts; nothing else decides
what that actor may do.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import asyncpg

from ..schemas.errors import StateError
from ..schemas.ids import Ids, SystemIds
from ..schemas.states import Risk
from ..streams.drivers import on_asyncpg
from . import audit
from .permissions import Act, Actor, ActorKind, Permission, permission
from .requests import Request, Sql, ask, check_words

_IDS = SystemIds()
_RISKS = list(Risk)


@dataclass(frozen=True, slots=True)
class Subject:
    """What an act on a run would be about, as it stands now.

    Attributes:
        risk: The higher one of the saga's severity and the step's risk.
        version: Of the run.
        fence, probes: Of the step.
    """

    run: UUID
    tenant: str
    service: str
    saga: str
    key: str
    state: str
    version: int
    step_state: str | None
    risk: Risk
    fence: int | None = None
    probes: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of asking.

    Attributes:
        outcome: ASKED: a request stands, and the service carries it out. REFUSED: nothing but the audit was written.
        permission: What the actor may do about it.
        request: Its id, None when refused.
        audit: The entry of a refusal.
        text: Why it was refused; of one for which a second person is needed, that it is.
        code: MP660 when it is not permitted, MP664 when it has to be proposed.
    """

    outcome: Literal["ASKED", "REFUSED"]
    permission: Permission
    request: UUID | None = None
    audit: UUID | None = None
    text: str = ""
    code: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a request.

    Attributes:
        state: OPEN: the service has not looked yet. HELD: a second person is waited for. ACCEPTED, REFUSED.
        text: What followed, or why not; None while there is no answer.
        after: States of run and step after it; None while there is no answer.
        audit: The entry; None while there is no answer.
    """

    id: UUID
    run: UUID
    state: Literal["OPEN", "HELD", "ACCEPTED", "REFUSED"]
    what: str
    step: str | None
    by: str
    reason: str
    at: datetime
    text: str | None
    after: Mapping[str, Any] | None
    audit: UUID | None
    confirmed_by: str | None


async def subject_of(
    connection: asyncpg.Connection[Any], run: UUID, step: str | None = None, iteration: str = ""
) -> Subject:
    """Look at what an act would be about.

    Raises:
        StateError: MP604 when there is no such run.
    """
    row = await connection.fetchrow(Sql.subject, run, step, iteration)
    if row is None:
        raise StateError(
            "MP604",
            f"there is no run {run}. Start it first, or look whether this is its database; `milepost runs list` shows "
            "those there are.",
        )
    risk = max(Risk(row["severity"]), Risk(row["risk"] or Risk.LOW), key=_RISKS.index)
    names = ("tenant", "service", "saga", "key", "state", "version", "step_state", "fence", "probes")
    return Subject(run=row["id"], risk=risk, **{name: row[name] for name in names})


async def ask_for(
    connection: asyncpg.Connection[Any],
    actor: Actor,
    request: Request,
    *,
    ids: Ids = _IDS,
    call: str = "ask_for()",
) -> Outcome:
    """Ask for an act on a run, or keep that it was refused; in the open transaction, or one of its own.

    The service carries the request out (`answer_of` tells); one of a person for CRITICAL risk is HELD there until
    another person has confirmed it.

    Args:
        actor: Who acts; `request.by` and `request.kind` are taken from it.
        request: What is wanted. With `proposal` it is what a person has accepted, so the actor needs the permission to
            accept, not that for the act.
        ids: For request and audit.
        call: Name of the command or page, for errors.

    Raises:
        UsageError: MP614 when who or why is not said.
        StateError: MP604 when there is no such run.
    """
    check_words(call, by=actor.name, reason=request.reason)
    async with connection.transaction():
        subject = await subject_of(connection, request.run, request.step, request.iteration)
        wanted = Act.ACCEPT_PROPOSAL if request.proposal is not None else Act(request.what)
        found = permission(actor, wanted, tenant=subject.tenant, saga=subject.saga, risk=subject.risk)
        if _widens(actor, request) and found is Permission.SAFE_REPAIR:
            found = Permission.APPROVAL_REQUIRED
        if found is Permission.FORBIDDEN or (
            found is Permission.APPROVAL_REQUIRED and actor.kind is not ActorKind.PERSON
        ):
            return await _refused(connection, actor, request, subject, found, ids=ids)
        asked = replace(request, by=actor.name, kind=actor.kind.value)
        written = await ask(on_asyncpg(connection), asked, ids, call)
    second = found is Permission.APPROVAL_REQUIRED and request.confirmed is None
    text = (
        f"{subject.saga}/{subject.key} is {subject.risk.value}: a second person has to confirm it"
        if second
        else ""
    )
    return Outcome("ASKED", found, request=written, text=text)


def _widens(actor: Actor, request: Request) -> bool:
    """Whether a machine's request says more than "once more": a fact that it has not seen, or more to spend."""
    return actor.kind is not ActorKind.PERSON and (request.did_not_happen or request.budget is not None)


async def _refused(
    connection: asyncpg.Connection[Any],
    actor: Actor,
    request: Request,
    subject: Subject,
    found: Permission,
    *,
    ids: Ids,
) -> Outcome:
    text = refusal(actor, Act(request.what), found, tenant=subject.tenant, saga=subject.saga)
    entry = audit.Entry(
        act=f"run.{request.what}",
        reason=request.reason,
        outcome="REFUSED",
        tenant=subject.tenant,
        run=subject.run,
        step=request.step,
        before={"run": subject.state} | ({} if subject.step_state is None else {"step": subject.step_state}),
        evidence={"refused": text, "permission": found.value},
    )
    written = await audit.write(connection, actor, entry, ids)
    code = "MP660" if found is Permission.FORBIDDEN else "MP664"
    return Outcome("REFUSED", found, audit=written, text=text, code=code)


def refusal(actor: Actor, act: Act, found: Permission, *, tenant: str, saga: str | None) -> str:
    """Say why an actor may not do something, and what that actor may do instead."""
    if found is Permission.APPROVAL_REQUIRED:
        return f"{actor.name} may propose {act.value}, and a person accepts it"
    roles = ", ".join(sorted(role.value for role in actor.roles(tenant, saga))) or "no role"
    where = f"of saga {saga}" if saga is not None else "that belongs to no saga"
    where += f" of tenant {tenant}" if tenant else ""
    return f"{actor.name} has {roles} for what is {where}, and that does not let {act.value}"


async def answer_of(connection: asyncpg.Connection[Any], request: UUID) -> Answer | None:
    """Say what became of a request so far; None when there is no such request."""
    row = await connection.fetchrow(Sql.request, request)
    if row is None:
        return None
    after = None if row["after"] is None else json.loads(row["after"])
    names = ("id", "state", "what", "step", "by", "reason", "at", "audit", "confirmed_by")
    return Answer(run=row["run_id"], text=row["answer"], after=after, **{name: row[name] for name in names})


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """An act that is no request: on a letter, the outbox, a replay, settings.

    Attributes:
        name: As the audit calls it, such as "letter.redrive".
        saga: Of what it is about; None for what belongs to none.
        evidence: What it is about, for the entry of a refusal.
    """

    act: Act
    name: str
    reason: str
    tenant: str = ""
    saga: str | None = None
    risk: Risk | None = None
    run: UUID | None = None
    evidence: Mapping[str, Any] = field(default_factory=dict)


async def refuse(
    connection: asyncpg.Connection[Any], actor: Actor, attempt: Attempt, *, ids: Ids = _IDS
) -> StateError | None:
    """Say why an actor may not make an attempt, having kept that in the audit; None when it may.

    Returns:
        MP660 when it is forbidden, MP664 when the actor may propose it.
    """
    found = permission(actor, attempt.act, tenant=attempt.tenant, saga=attempt.saga, risk=attempt.risk)
    if found in {Permission.SAFE_REPAIR, Permission.READ_ONLY}:
        return None
    text = refusal(actor, attempt.act, found, tenant=attempt.tenant, saga=attempt.saga)
    await keep_refusal(connection, actor, attempt, text, ids=ids)
    if found is Permission.FORBIDDEN:
        return StateError("MP660", f"{text}. Ask somebody who may, or for that role.")
    return StateError("MP664", f"{text}. Propose it.")


async def keep_refusal(
    connection: asyncpg.Connection[Any], actor: Actor, attempt: Attempt, why: str, *, ids: Ids = _IDS
) -> UUID:
    """Keep in the audit that an attempt was refused; returns the entry's id."""
    entry = audit.Entry(
        act=attempt.name,
        reason=attempt.reason,
        outcome="REFUSED",
        tenant=attempt.tenant,
        run=attempt.run,
        evidence={**attempt.evidence, "refused": why},
    )
    return await audit.write(connection, actor, entry, ids)


@asynccontextmanager
async def attempting(
    connection: asyncpg.Connection[Any], actor: Actor, attempt: Attempt, *, ids: Ids = _IDS
) -> AsyncGenerator[None]:
    """Let an actor make an attempt in the block, which writes its own entry when it is done.

    What is not permitted, and what the state refuses, is kept in the audit as REFUSED. The connection must have no open
    transaction, which would take that back.

    Raises:
        StateError: MP660 when it is forbidden, MP664 when it has to be proposed; and what the block raises.
    """
    refused = await refuse(connection, actor, attempt, ids=ids)
    if refused is not None:
        raise refused
    try:
        yield
    except StateError as error:
        await keep_refusal(connection, actor, attempt, str(error), ids=ids)
        raise
