"""What is seen at a glance, what waits for a person, and runs: found, and one in full."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

import asyncpg
from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict

from ....recovery.permissions import Act, Actor, scope_of
from ....schemas.states import RunState
from ...views import overview as at_a_glance
from ...views import worklist as waiting
from ...views.run import run_view
from ...views.run_rows import Event, RunView
from ...views.runs import RunRow, Search, search
from ..identity import Connected, Signed
from ..permitting import needs
from ..problems import Problem
from ..seeing import seen
from .described import READS, Instant
from .paging import Cursor, Limit, Page, cursor_of, read_cursor

router = APIRouter(tags=["runs"], responses=READS)

Text = Annotated[str | None, Query(max_length=500)]
Group = Literal["approvals", "steps", "undos", "runs", "unknown", "letters", "troubles"]


class RunHistory(BaseModel):
    """What happened to a run, in order."""

    items: list[Event]


class RunManifest(BaseModel):
    """What a run is made of and rests on."""

    model_config = ConfigDict(extra="allow")


@router.get("/overview", dependencies=[needs(Act.READ_RUNS)])
async def show_overview(actor: Signed, connection: Connected) -> at_a_glance.Overview:
    """Show how many runs live, how the last week went, and how far outbox and consumers are."""
    return await at_a_glance.overview(connection, scope_of(actor))


@router.get("/worklist", dependencies=[needs(Act.READ_RUNS)])
async def list_work(
    actor: Signed, connection: Connected, kind: Group | None = None, saga: Text = None, limit: Limit = 100
) -> waiting.Worklist:
    """List what waits for a person, the most urgent first; `kind=approvals`: what waits for a yes."""
    payloads = scope_of(actor, Act.READ_PAYLOAD)
    return await waiting.worklist(
        connection, scope_of(actor), group=kind, saga=saga, limit=limit, payloads=payloads
    )


@router.get("/runs", dependencies=[needs(Act.READ_RUNS)])
async def list_runs(
    *,
    actor: Signed,
    connection: Connected,
    q: Annotated[str, Query(max_length=500, description="Id, key, SAGA/KEY or correlation.")] = "",
    state: Annotated[list[RunState] | None, Query()] = None,
    saga: Text = None,
    tenant: Text = None,
    begun: Annotated[Instant | None, Query(description="Began then or later.")] = None,
    before: Annotated[Instant | None, Query(description="Began earlier.")] = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Page[RunRow]:
    """Find runs, the youngest first."""
    wanted = Search(
        q=q,
        states=tuple(state or ()),
        saga=saga,
        tenant=tenant,
        begun=begun,
        before=before,
        cursor=read_cursor(cursor, UUID),
        limit=limit,
    )
    found = await search(connection, scope_of(actor), wanted)
    return Page(items=found.runs, next=cursor_of(found.next))


@router.get("/runs/{run}", dependencies=[needs(Act.READ_RUNS)])
async def show_run(run: UUID, actor: Signed, connection: Connected) -> RunView:
    """Show a run in full: steps with their tries and what may be decided, evidence, messages, what it rests on."""
    return await _run(connection, actor, run)


@router.get("/runs/{run}/history", dependencies=[needs(Act.READ_RUNS)])
async def show_history(run: UUID, actor: Signed, connection: Connected) -> RunHistory:
    """Show what happened to a run, in order."""
    return RunHistory(items=(await _run(connection, actor, run)).timeline)


@router.get("/runs/{run}/manifest", dependencies=[needs(Act.READ_RUNS)])
async def show_manifest(run: UUID, actor: Signed, connection: Connected) -> RunManifest:
    """Show what a run is made of and rests on."""
    return RunManifest(**(await _run(connection, actor, run)).manifest)


async def _run(connection: asyncpg.Connection[Any], actor: Actor, run: UUID) -> RunView:
    _, scope = await seen(connection, actor, Act.READ_RUNS, "run", run)
    found = await run_view(connection, scope, run, actor=actor)
    if found is None:
        raise Problem(404, "MP710", f"There is no run {run}, or none that you may see.")
    return found
