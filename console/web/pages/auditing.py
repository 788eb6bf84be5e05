"""The audit with its chain of hashes, settings, and who may do what."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Annotated, Literal
from urllib.parse import urlencode
from uuid import UUID

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel
from starlette.responses import Response

from ....recovery.auditing import AuditFilter
from ....recovery.permissions import Act, Role
from ....recovery.verifying import verify
from ....schemas.settings import Settings
from ...filters import read_since
from ...settings import of_process
from ...views import auditing as view
from ...views import describing
from ...views.flow import whole
from ..exporting import MOST, Kind, exported
from ..identity import Connected, Signed
from ..parts import parts
from ..permitting import needs
from ..permitting import refused as refused_of
from ..problems import Problem
from ..rendering import page
from ..rights import seen
from ..settings import PREFIX, ConsoleSettings

router = APIRouter()
_PAGE = 50
#: Seconds that a page goes along the chain; `milepost audit verify` takes as long as it needs.
_VERIFY = 20.0


class AskedAudit(BaseModel):
    """The filter of the audit, as the address has it."""

    actor: str = ""
    kind: Literal["PERSON", "SYSTEM", "AGENT", ""] = ""
    act: str = ""
    outcome: Literal["DONE", "HELD", "REFUSED", ""] = ""
    run: str = ""
    since: str = ""

    @property
    def query(self) -> str:
        """The filter as an address, without what is empty."""
        return urlencode({name: value for name, value in self.model_dump().items() if value})

    def wanted(self, before: str = "") -> AuditFilter:
        """Return what the view takes.

        Raises:
            UsageError: MP601 for a time that cannot be read.
            Problem: 422, MP709 for an id that is none.
        """
        since: timedelta | datetime | None = read_since(self.since.strip()) if self.since.strip() else None
        try:
            run = UUID(self.run.strip()) if self.run.strip() else None
            at, _, id = before.partition("~")
            place = (datetime.fromisoformat(at), UUID(id)) if before else None
        except ValueError as error:
            raise Problem(422, "MP709", "That is no id of a run, or no place in the list.") from error
        return AuditFilter(
            actor=self.actor.strip() or None,
            kind=self.kind or None,
            act=self.act.strip() or None,
            outcome=self.outcome or None,
            run=run,
            since=since,
            before=place,
        )


@router.get("/audit", dependencies=[needs(Act.READ_AUDIT)])
async def show_audit(
    request: Request,
    actor: Signed,
    connection: Connected,
    asked: Annotated[AskedAudit, Query()],
    before: str = "",
) -> Response:
    """Show who did what, or was not let, and why."""
    scope = seen(actor, Act.READ_AUDIT)
    found = await view.audit(connection, scope, asked.wanted(before), limit=_PAGE)
    after = None
    if found.next is not None:
        place = urlencode({"before": f"{found.next[0].isoformat()}~{found.next[1]}"})
        after = "&".join(filter(None, [asked.query, place]))
    pages = {"shown": len(found.rows), "next": after, "first": asked.query if before else None}
    return page(
        request,
        "audit.html",
        live="audit",
        found=found,
        asked=asked,
        pages=pages,
        whole=whole(scope),
        verified=None,
    )


@router.get("/audit.{kind}", dependencies=[needs(Act.READ_AUDIT)])
async def export_audit(
    kind: Kind, actor: Signed, connection: Connected, asked: Annotated[AskedAudit, Query()]
) -> Response:
    """Give what the filter shows as a file."""
    scope = seen(actor, Act.READ_AUDIT)
    return exported(
        kind, "audit", view.AuditRow, (await view.audit(connection, scope, asked.wanted(), limit=MOST)).rows
    )


@router.get("/audit/verify", dependencies=[needs(Act.READ_AUDIT)])
async def show_verified(request: Request, actor: Signed, connection: Connected) -> Response:
    """Go along the whole chain and say whether every entry is as it was."""
    if not whole(seen(actor, Act.READ_AUDIT)):
        raise refused_of(actor, Act.READ_AUDIT)
    try:
        async with asyncio.timeout(_VERIFY):
            verified = await verify(connection)
    except TimeoutError as error:
        detail = f"The chain is too long to be verified in {_VERIFY:.0f} s. `milepost audit verify` takes its time."
        raise Problem(503, "MP782", detail) from error
    return page(request, "audit_verify.html", verified=verified)


@router.get("/settings", dependencies=[needs(Act.READ_SETTINGS)])
async def show_settings(request: Request, actor: Signed) -> Response:
    """Show the settings of this console's process, masked, each with what it means."""
    if not whole(seen(actor, Act.READ_SETTINGS)):
        raise refused_of(actor, Act.READ_SETTINGS)
    own = parts(request).settings
    groups = [
        ("Milepost", describing.settings_view(of_process(own.core), Settings, "MILEPOST_")),
        ("Console", describing.settings_view(of_process(own, PREFIX), ConsoleSettings, PREFIX)),
    ]
    return page(request, "settings.html", groups=groups)


@router.get("/permissions", dependencies=[needs(Act.READ_PERMISSIONS)])
async def show_permissions(request: Request, actor: Signed) -> Response:
    """Show what each role may do, and what whoever asks was granted."""
    seen(actor, Act.READ_RUNS)
    return page(request, "permissions.html", table=describing.permissions_view(), roles=list(Role))
