"""Recovery: what has drifted now, what is proposed, and what was decided."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Form, Request
from pydantic import BaseModel
from starlette.responses import RedirectResponse, Response

from ....recovery import accepting
from ....recovery.executor import Executor, Sql
from ....recovery.model import Action, Drift, Observation, Plan, Reconciled
from ....recovery.permissions import Act
from ....recovery.proposals import proposals
from ....recovery.proposing import DriftProposals
from ....schemas.errors import MilepostError
from ...views.reconciled import reconciliations
from ..drifts import NO_APP, NOW, drift_named, inspected, looking, mine
from ..identity import Connected, Signed
from ..parts import Parts, parts
from ..permitting import needs
from ..problems import Problem
from ..rendering import page
from ..rights import NOT_PERMITTED, offer, reason_of, seen

router = APIRouter()
_PAGE = 50


@dataclass(frozen=True, slots=True)
class Drifted:
    """A drift as it is now, and what would be done about it."""

    seen: Observation
    plan: Plan
    alone: bool


@router.get("/recovery", dependencies=[needs(Act.READ_RUNS)])
async def show_recovery(
    request: Request,
    actor: Signed,
    connection: Connected,
    drift: str = "",
    before: UUID | None = None,
) -> Response:
    """Show what has drifted now, what is proposed, and what was decided."""
    scope = seen(actor, Act.READ_RUNS)
    wanted = drift_named(drift) if drift else None
    own = parts(request)
    policies = own.policies
    found = [
        one
        for one in await looking(own, connection, Executor(ids=own.ids), wanted).observe({})
        if mine(actor, one, Act.READ_RUNS)
    ]
    plans = [(one, policies.plan(one)) for one in found]
    now = [
        Drifted(one, plan, policies.alone(one, plan)) for one, plan in plans if plan.action is not Action.NONE
    ]
    made = await reconciliations(
        connection, scope, drift=wanted.value if wanted else None, before=before, limit=_PAGE
    )
    query = f"drift={wanted.value}" if wanted else ""
    following = None if made.next is None else "&".join(filter(None, [query, f"before={made.next}"]))
    pages = {"shown": len(made.reconciliations), "next": following, "first": query if before else None}
    mayproposals = seen(actor, Act.READ_PROPOSALS)
    return page(
        request,
        "recovery.html",
        now=await connection.fetchval(Sql.now),
        drifted=now[:NOW],
        more=len(now) > NOW,
        proposals=await proposals(connection, mayproposals, only_open=True),
        accept=offer(actor, Act.ACCEPT_PROPOSAL, label="Accept", tenant=None),
        reject=offer(actor, Act.REJECT_PROPOSAL, label="Reject", tenant=None, danger=True),
        reconcile=offer(
            actor, Act.RECONCILE, label="Reconcile now", says="repairs what is safe", tenant=None
        ),
        made=made.reconciliations,
        pages=pages,
        drift=wanted.value if wanted else "",
        drifts=[one.value for one in Drift],
        no_app=_no_app(own),
        inspects=[] if own.service is None else list(own.service.inspections),
    )


def _no_app(own: Parts) -> str:
    return NO_APP if own.service is None else ""


class Asked(BaseModel):
    """What the form asks for."""

    reason: str = ""
    drift: str = ""


@router.post("/recovery", dependencies=[needs(Act.RECONCILE)])
async def reconcile(
    request: Request, actor: Signed, connection: Connected, given: Annotated[Asked, Form()]
) -> Response:
    """Repair what is safe of what whoever asks may repair, and show what became of each."""
    reason = reason_of(given.reason)
    own = parts(request)
    executor = Executor(
        ids=own.ids, by=actor.name, kind=actor.kind, asked=reason, proposals=DriftProposals(own.ids)
    )
    wanted = drift_named(given.drift) if given.drift else None
    made = looking(own, connection, executor, wanted, asked=True)
    found = [one for one in await made.observe({}) if mine(actor, one, Act.RECONCILE)]
    done: list[Reconciled] = await made.act(found)
    failed: list[str] = []
    if wanted in {None, Drift.INSPECTED}:
        differs, failed = await inspected(own, connection, executor, actor)
        done += differs
    shown = [one for one in done if one.plan.action is not Action.NONE]
    return page(
        request,
        "reconciled.html",
        done=shown,
        drift=wanted.value if wanted else "",
        reason=reason,
        failed=failed,
        no_app=_no_app(own),
    )


class Answer(BaseModel):
    """What a person says to a proposal."""

    act: str
    reason: str = ""


@router.post("/proposals/{proposal}", dependencies=[needs(Act.ACCEPT_PROPOSAL)])
async def answer_proposal(
    proposal: UUID, actor: Signed, connection: Connected, given: Annotated[Answer, Form()]
) -> Response:
    """Accept or reject a proposal, as it was seen."""
    scope = seen(actor, Act.READ_PROPOSALS)
    if not await proposals(connection, scope, id=proposal):
        raise Problem(404, "MP666", "There is no such proposal.")
    decide = accepting.accept if given.act == Act.ACCEPT_PROPOSAL else accepting.reject
    try:
        await decide(connection, actor, proposal, reason=reason_of(given.reason))
    except MilepostError as error:
        status = 403 if error.code in NOT_PERMITTED | {"MP669"} else 409
        raise Problem(status, error.code, error.text) from error
    return RedirectResponse("/recovery#proposals", 303)
