"""All runs: search, a page at a time, as a file, and the filters that a person has saved."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response

from ....recovery.permissions import Act, Scope
from ....schemas.states import FINAL_RUN_STATES, RunState
from ...views.runs import MOST, RunPage, Search, search, workflows
from ...views.saved import saved
from ..identity import Connected, Seen, Signed
from ..listing import as_csv, as_json, query_of
from ..permitting import needs
from ..rendering import page

router = APIRouter(dependencies=[needs(Act.READ_RUNS)])

PATH: Final = "/runs"
_HELD: Final = (RunState.MANUAL_REQUIRED, RunState.COMPENSATION_FAILED)
#: What the filter offers beside single states.
GROUPS: Final[dict[str, tuple[RunState, ...]]] = {
    "live": tuple(state for state in RunState if state not in FINAL_RUN_STATES),
    "person": _HELD,
    "ended": tuple(state for state in RunState if state in FINAL_RUN_STATES),
    "badly": (RunState.FAILED, RunState.COMPENSATED, RunState.CANCELLED, RunState.EXPIRED),
}
_GROUP_WORDS = {
    "live": "all that live",
    "person": "in front of a person",
    "ended": "all that ended",
    "badly": "ended, not well",
}
WITHIN: Final = {
    "1h": timedelta(hours=1),
    "24h": timedelta(days=1),
    "7d": timedelta(days=7),
    "30d": timedelta(days=30),
}
_FIELDS = ("q", "state", "saga", "tenant", "within", "begun", "before")
_COLUMNS = (
    *("id", "saga", "key", "definition", "state", "code", "cause", "step", "step_state", "tries", "tenant"),
    *("service", "correlation", "created_at", "finished_at", "took"),
)


async def wanted(
    *,
    connection: Connected,
    q: Annotated[str, Query(max_length=300)] = "",
    state: str = "",
    saga: Annotated[str, Query(max_length=200)] = "",
    tenant: Annotated[str, Query(max_length=200)] = "",
    within: str = "",
    begun: str = "",
    before: str = "",
    cursor: str = "",
) -> Search:
    """Read what a list's address says; what makes no sense there filters nothing."""
    since = _instant(begun)
    if within in WITHIN:
        since = await connection.fetchval("SELECT milepost.clock()") - WITHIN[within]
    return Search(
        q=q.strip().replace("\x00", ""),
        states=_states(state),
        saga=saga or None,
        tenant=tenant or None,
        begun=since,
        before=_instant(before),
        cursor=_uuid(cursor),
    )


Wanted = Annotated[Search, Depends(wanted)]


def _states(text: str) -> tuple[RunState, ...]:
    known = {state.value for state in RunState}
    return GROUPS.get(text) or tuple(RunState(one) for one in text.split(",") if one in known)


def _instant(text: str) -> datetime | None:
    try:
        at = datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    return at.replace(tzinfo=UTC) if at is not None and at.tzinfo is None else at


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text) if text else None
    except ValueError:
        return None


@router.get("/runs")
async def show(
    *, request: Request, actor: Signed, scope: Seen, connection: Connected, search_for: Wanted
) -> Response:
    """Show a page of the runs that are looked for."""
    found = await search(connection, scope, search_for)
    query = query_of(request.query_params)
    return page(
        request,
        "runs.html",
        now=found.now,
        live=None if search_for.cursor else "runs",
        q=search_for.q,
        found=found,
        query=query,
        given={name: request.query_params.get(name, "") for name in _FIELDS},
        pager=pager(request, found, first=search_for.cursor is not None),
        sagas=await workflows(connection, scope),
        saved=await saved(connection, actor.name, PATH),
        states=[
            *_GROUP_WORDS.items(),
            *((one.value, one.value.replace("_", " ").lower()) for one in RunState),
        ],
    )


def pager(request: Request, found: RunPage, *, first: bool) -> dict[str, Any]:
    """Return what the pager of a list shows."""
    query = query_of(request.query_params)
    following = query_of(request.query_params, cursor=found.next) if found.next else None
    return {"shown": len(found.runs), "next": following, "first": query if first else None}


@router.get("/runs.csv")
async def csv(scope: Seen, connection: Connected, search_for: Wanted) -> Response:
    """Return what the filter shows as CSV."""
    return as_csv("runs", _COLUMNS, (await _all(connection, scope, search_for)).runs)


@router.get("/runs.json")
async def json(scope: Seen, connection: Connected, search_for: Wanted) -> Response:
    """Return what the filter shows as JSON."""
    return as_json("runs", (await _all(connection, scope, search_for)).runs)


async def _all(connection: Any, scope: Scope, search_for: Search) -> RunPage:
    return await search(connection, scope, search_for.model_copy(update={"limit": MOST, "cursor": None}))
