"""The outbox with its relay, and replays. They belong to no tenant: whoever may see everything sees them."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from ....recovery.acting import Attempt, attempting
from ....recovery.permissions import Act, Actor, scope_of
from ...replay import read_edge
from ...views import flow as views
from ..identity import Connected, Signed
from ..parts import parts
from ..permitting import needs, refused
from ..problems import Problem
from ..replaying import Jobs, job_of
from .described import READS, WRITES, IdempotencyKey
from .paging import Cursor, Limit, Page, cursor_of, read_cursor

#: Seconds that the answer waits for a replay to have an id.
SOON = 5.0
#: What could not be read as an option of the command that carries it out.
Name = Annotated[str, Field(min_length=1, max_length=249, pattern=r"^[^-\s\x00][^\x00]*$")]

router = APIRouter(tags=["flow"], responses=READS)


class NewReplay(BaseModel):
    """A slice of a topic that is to be held against a consumer's inbox; nothing is changed by it.

    Attributes:
        since: First offsets by partition (0:120,1:88), an instant, or how long ago (2h).
        until: First offsets not to read; left out: as far as the topic goes.
    """

    model_config = ConfigDict(extra="forbid")

    consumer: Name
    topic: Name
    since: Name
    until: Name | None = None
    reason: str = Field(min_length=1, max_length=4000)


class ReplayBegun(BaseModel):
    """A dry run that this console's process carries out.

    Attributes:
        id: `GET /replays/{id}` tells how far it is; null while it has none.
        said: What it has said so far.
    """

    id: UUID | None
    running: bool
    said: str


class ReplayDetail(BaseModel):
    """A replay with what it has found."""

    replay: views.Replay
    findings: list[views.Finding]


@router.get("/outbox", dependencies=[needs(Act.READ_OUTBOX)])
async def show_outbox(actor: Signed, connection: Connected) -> views.Outbox:
    """Show how far the relay is, what it has put aside, and how far consumers have read."""
    _whole(actor, Act.READ_OUTBOX)
    return await views.outbox(connection)


@router.get("/replays", dependencies=[needs(Act.READ_REPLAYS)])
async def list_replays(
    actor: Signed, connection: Connected, cursor: Cursor = None, limit: Limit = 50
) -> Page[views.Replay]:
    """List replays, the youngest first."""
    _whole(actor, Act.READ_REPLAYS)
    found = await views.replays(connection, before=read_cursor(cursor, UUID), limit=limit)
    return Page(items=found.replays, next=cursor_of(found.next))


@router.get("/replays/{replay}", dependencies=[needs(Act.READ_REPLAYS)])
async def show_replay(replay: UUID, actor: Signed, connection: Connected) -> ReplayDetail:
    """Show a replay, and each event that is missing, conflicts, or was parked."""
    _whole(actor, Act.READ_REPLAYS)
    found, findings = await views.replay(connection, replay)
    return ReplayDetail(replay=found, findings=findings)


@router.post("/replays", dependencies=[needs(Act.REPLAY_DRY_RUN)], responses=WRITES, status_code=202)
async def begin_dry_run(
    body: NewReplay, request: Request, actor: Signed, connection: Connected, idempotency_key: IdempotencyKey
) -> ReplayBegun:
    """Begin a dry run of a replay: what was applied, what is missing, what conflicts."""
    for name in ("since", "until"):
        if getattr(body, name) is not None:
            read_edge(name, getattr(body, name))
    own = parts(request)
    jobs: Jobs = request.app.state.replays
    edges = body.model_dump(include={"consumer", "topic", "since", "until"})
    attempt = Attempt(act=Act.REPLAY_DRY_RUN, name="replay", reason=body.reason, evidence=edges)
    async with attempting(connection, actor, attempt, ids=own.ids):
        job = job_of(
            own.clock,
            consumer=body.consumer,
            topic=body.topic,
            apply=False,
            looks_first=False,
            by=actor.name,
            reason=body.reason,
        )
        words = [body.consumer, f"--topic={body.topic}", f"--since={body.since}"]
        jobs.begin([*words, *([f"--until={body.until}"] if body.until else [])], job, own.settings.core)
    await job.known(SOON)
    if job.failed:
        raise Problem(409, "MP781", job.said.strip() or "The replay ended before it began to read.")
    return ReplayBegun(id=job.replay, running=job.running, said=job.said)


def _whole(actor: Actor, act: Act) -> None:
    """Refuse whoever may see only some tenants or sagas."""
    if not views.whole(scope_of(actor, act)):
        raise refused(actor, act)
