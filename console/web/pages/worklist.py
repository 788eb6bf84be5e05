"""The worklist: what waits for a person, the most urgent first."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from ....recovery.permissions import Act, Actor, scope_of
from ...views.runs import workflows
from ...views.saved import saved
from ...views.worklist import GROUPS, MOST, Worklist, worklist
from ..identity import Connected, Seen, Signed
from ..listing import as_csv, as_json, query_of
from ..permitting import needs
from ..rendering import page

router = APIRouter(dependencies=[needs(Act.READ_RUNS)])

PATH = "/worklist"
_WORDS = {
    "approvals": "Approvals",
    "steps": "Steps",
    "undos": "Undos",
    "runs": "Runs",
    "unknown": "Unknown",
    "letters": "Dead letters",
    "troubles": "Standing still",
}
_COLUMNS = (
    *("urgency", "kind", "title", "step", "state", "code", "message", "tries", "amount", "tenant", "since"),
    *("possible", "asked", "run_id"),
)
Group = Annotated[str, Query(alias="kind", max_length=20)]
Saga = Annotated[str, Query(max_length=200)]


@router.get("/worklist")
async def show(
    *,
    request: Request,
    actor: Signed,
    scope: Seen,
    connection: Connected,
    kind: Group = "",
    saga: Saga = "",
) -> Response:
    """Show what waits."""
    payloads = scope_of(actor, Act.READ_PAYLOAD)
    group = kind if kind in GROUPS else None
    found = await worklist(connection, scope, group=group, saga=saga or None, payloads=payloads)
    whole = found if group is None else await worklist(connection, scope, saga=saga or None)
    return page(
        request,
        "worklist.html",
        now=found.now,
        live="worklist",
        found=found,
        groups=[(name, words, whole.groups[name]) for name, words in _WORDS.items()],
        figure=whole.figure,
        kind=group or "",
        saga=saga,
        sagas=await workflows(connection, scope),
        query=query_of(request.query_params),
        saved=await saved(connection, actor.name, PATH),
        counts={} if saga else {"worklist": whole.figure},
    )


@router.get("/worklist.csv")
async def csv(*, actor: Signed, connection: Connected, kind: Group = "", saga: Saga = "") -> Response:
    """Return what waits as CSV."""
    return as_csv("worklist", _COLUMNS, (await _all(connection, actor, kind, saga)).rows)


@router.get("/worklist.json")
async def json(*, actor: Signed, connection: Connected, kind: Group = "", saga: Saga = "") -> Response:
    """Return what waits as JSON."""
    return as_json("worklist", (await _all(connection, actor, kind, saga)).rows)


async def _all(connection: Any, actor: Actor, kind: str, saga: str) -> Worklist:
    group = kind if kind in GROUPS else None
    payloads, scope = scope_of(actor, Act.READ_PAYLOAD), scope_of(actor)
    return await worklist(connection, scope, group=group, saga=saga or None, limit=MOST, payloads=payloads)
