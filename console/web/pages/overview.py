"""The overview: what lives, what waits, how the last week went, and how far everything is behind."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from ....recovery.permissions import Act, scope_of
from ....schemas.states import RunState
from ...views.overview import MOST, Overview, overview, positions
from ...views.worklist import worklist
from ..identity import Connected, Seen, Signed
from ..permitting import needs
from ..rendering import page

router = APIRouter(dependencies=[needs(Act.READ_RUNS)])

#: Rows of the worklist that the overview shows.
_FIRST = 6
_WINDOWS = (("hour", "last hour"), ("day", "last 24 hours"), ("week", "last 7 days"))


@router.get("/")
async def show(request: Request, actor: Signed, scope: Seen, connection: Connected) -> Response:
    """Show everything at a glance."""
    found = await overview(connection, scope)
    ends = request.app.state.ends
    lag = ends.lag(await positions(connection, scope))
    waiting = await worklist(connection, scope, payloads=scope_of(actor, Act.READ_PAYLOAD))
    return page(
        request,
        "overview.html",
        now=found.now,
        live="overview",
        found=found,
        waiting=waiting,
        lag=lag,
        trouble=ends.trouble,
        first=waiting.rows[:_FIRST],
        windows=_WINDOWS,
        workflows=_workflows(found),
        most=MOST,
        State=RunState,
        counts={"worklist": waiting.figure},
    )


def _workflows(found: Overview) -> list[dict[str, object]]:
    """Return a row for each workflow: what lives by state, and how its last day went."""
    names = sorted({live.saga for live in found.live} | set(found.by_saga))
    made: list[dict[str, object]] = []
    for name in names:
        live = [one for one in found.live if one.saga == name]
        held = sum(
            o.amount for o in live if o.state in {RunState.MANUAL_REQUIRED, RunState.COMPENSATION_FAILED}
        )
        made.append(
            {
                "name": name,
                "live": sorted(live, key=lambda one: -one.amount),
                "amount": sum(one.amount for one in live),
                "held": held,
                "oldest": min((one.oldest for one in live), default=None),
                "day": found.by_saga.get(name),
            }
        )
    return made
