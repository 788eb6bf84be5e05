"""What waits: unknown outcomes with their evidence, held keys, signals, locks with their lines, queues and workers."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlencode
from uuid import UUID

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel
from starlette.responses import Response

from ....recovery.permissions import Act, scope_of
from ....schemas.errors import MilepostError
from ...views import unknown as doubts
from ...views import waiting as view
from ...views.waiting import SignalState
from ..exporting import MOST, Kind, exported
from ..identity import Connected, Signed
from ..permitting import needs
from ..problems import Problem
from ..rendering import page
from ..rights import may, offer, seen

router = APIRouter()
_PAGE = 50


@router.get("/unknown", dependencies=[needs(Act.READ_RUNS)])
async def show_unknown(request: Request, actor: Signed, connection: Connected) -> Response:
    """Show steps whose outcome nobody knows, with every answer of their probes."""
    found = await doubts.unknown(connection, seen(actor, Act.READ_RUNS))
    return page(request, "unknown.html", live="unknown", found=found, now=found.now)


@router.get("/unknown.{kind}", dependencies=[needs(Act.READ_RUNS)])
async def export_unknown(kind: Kind, actor: Signed, connection: Connected) -> Response:
    """Give them as a file."""
    found = await doubts.unknown(connection, seen(actor, Act.READ_RUNS), limit=MOST)
    return exported(kind, "unknown", doubts.Doubtful, [*found.asked, *found.given_up])


@router.get("/holds", dependencies=[needs(Act.READ_LETTERS)])
async def show_holds(request: Request, actor: Signed, connection: Connected, consumer: str = "") -> Response:
    """Show held keys, each with the order of what waits behind it."""
    found = await view.holds(
        connection,
        seen(actor, Act.READ_LETTERS),
        consumer=consumer.strip() or None,
        payloads=scope_of(actor, Act.READ_PAYLOAD),
    )
    release = offer(actor, Act.IGNORE, label="Release", danger=True)
    redrive = offer(actor, Act.REDRIVE, label="Redrive")
    return page(
        request,
        "holds.html",
        live="letters",
        found=found,
        consumer=consumer,
        now=found.now,
        redrive=redrive,
        release=release,
    )


@router.get("/holds.{kind}", dependencies=[needs(Act.READ_LETTERS)])
async def export_holds(kind: Kind, actor: Signed, connection: Connected, consumer: str = "") -> Response:
    """Give them as a file."""
    scope = seen(actor, Act.READ_LETTERS)
    found = await view.holds(
        connection,
        scope,
        consumer=consumer.strip() or None,
        limit=MOST,
        payloads=scope_of(actor, Act.READ_PAYLOAD),
    )
    return exported(kind, "holds", view.Hold, found.holds)


class AskedSignals(BaseModel):
    """The filter of signals, as the address has it."""

    state: Literal["matched", "unmatched", "expired", ""] = ""
    type: str = ""
    key: str = ""

    @property
    def query(self) -> str:
        """The filter as an address, without what is empty."""
        return urlencode({name: value for name, value in self.model_dump().items() if value})


@router.get("/signals", dependencies=[needs(Act.READ_SIGNALS)])
async def show_signals(
    request: Request,
    actor: Signed,
    connection: Connected,
    asked: Annotated[AskedSignals, Query()],
    before: UUID | None = None,
) -> Response:
    """Show awaited events that came."""
    found = await view.signals(
        connection,
        seen(actor, Act.READ_SIGNALS),
        state=asked.state or None,
        type=asked.type.strip() or None,
        key=asked.key.strip() or None,
        before=before,
        limit=_PAGE,
    )
    following = None if found.next is None else "&".join(filter(None, [asked.query, f"before={found.next}"]))
    pages = {"shown": len(found.signals), "next": following, "first": asked.query if before else None}
    return page(request, "signals.html", live="signals", found=found, asked=asked, pages=pages, now=found.now)


@router.get("/signals.{kind}", dependencies=[needs(Act.READ_SIGNALS)])
async def export_signals(
    kind: Kind, actor: Signed, connection: Connected, asked: Annotated[AskedSignals, Query()]
) -> Response:
    """Give what the filter shows as a file."""
    state: SignalState | None = asked.state or None
    found = await view.signals(
        connection,
        seen(actor, Act.READ_SIGNALS),
        state=state,
        type=asked.type.strip() or None,
        key=asked.key.strip() or None,
        limit=MOST,
    )
    return exported(kind, "signals", view.Signal, found.signals)


@router.get("/signals/{signal_id}", dependencies=[needs(Act.READ_SIGNALS)])
async def show_signal(request: Request, signal_id: UUID, actor: Signed, connection: Connected) -> Response:
    """Show one signal with what it says."""
    scope = seen(actor, Act.READ_SIGNALS)
    try:
        one = await view.signal(connection, scope, signal_id)
        readable = may(actor, Act.READ_PAYLOAD, one.tenant)
        payload = await view.signal_payload(connection, scope, signal_id, readable=readable)
    except MilepostError as error:
        raise Problem(404, error.code, error.text) from error
    return page(request, "signal.html", one=one, payload=payload)


@router.get("/resources", dependencies=[needs(Act.READ_RESOURCES)])
async def show_resources(
    request: Request, actor: Signed, connection: Connected, name: str = "", tenant: str = ""
) -> Response:
    """Show locks with who has them and who waits, queues with who serves them, and workers."""
    scope = seen(actor, Act.READ_RESOURCES)
    found = await view.resources(connection, scope, name=name.strip() or None)
    line = await view.resource_line(connection, scope, tenant, name) if name else []
    return page(request, "resources.html", live="resources", found=found, name=name, line=line, now=found.now)


@router.get("/resources.{kind}", dependencies=[needs(Act.READ_RESOURCES)])
async def export_resources(kind: Kind, actor: Signed, connection: Connected) -> Response:
    """Give the locks as a file."""
    found = await view.resources(connection, seen(actor, Act.READ_RESOURCES), limit=MOST)
    return exported(kind, "locks", view.Resource, found.resources)
