"""One run: where it stands, what it did, on what evidence, and the acts that a person may ask for."""

from __future__ import annotations

import asyncio
import json as codec
from datetime import datetime
from typing import Annotated, Any, Literal, cast, get_args
from uuid import UUID

from fastapi import APIRouter, Form, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import JSONResponse, RedirectResponse, Response

from ....recovery.acting import ask_for, subject_of
from ....recovery.permissions import Act, Actor, Scope
from ....recovery.requests import Request as Wish
from ....recovery.seconding import confirm, decline, held
from ....sagas.facts import ActName
from ....schemas.errors import UsageError
from ....streams.database import Database
from ... import acts
from ...views.live import may_follow
from ...views.run import request_of, run_view
from ...views.run_rows import RunView
from ..identity import Connected, Seen, Signed
from ..identity.recognising import connected
from ..parts import parts
from ..permitting import needs
from ..problems import Problem
from ..rendering import page

router = APIRouter(dependencies=[needs(Act.READ_RUNS)])

#: How long a page waits for an act to be carried out before it shows that it is asked for, in seconds.
PATIENCE, _LOOK = 3.0, 0.1
#: What may be asked of a run.
ACTS = tuple(Act(name) for name in get_args(ActName))
#: Most rows of the timeline that are shown at once; the rest is a click away.
_TIMELINE = 200


@router.get("/runs/{run_id}.json", name="run_json")
async def json(actor: Signed, scope: Seen, connection: Connected, run_id: UUID) -> Response:
    """Return a run in full as JSON, its payloads masked as on the page."""
    run = _there(await run_view(connection, scope, run_id, actor=actor), run_id)
    headers = {"content-disposition": f'attachment; filename="milepost-run-{run_id}.json"'}
    body = run.model_dump(mode="json", exclude={"drawing", "choices", "lanes"})
    return JSONResponse(body, headers=headers)


@router.get("/runs/{run_id}")
async def show(
    *,
    request: Request,
    actor: Signed,
    scope: Seen,
    connection: Connected,
    run_id: UUID,
    asked: str = "",
    whole: Annotated[bool, Query()] = False,
    wanted: Annotated[str, Query(max_length=50)] = "",
    at: Annotated[str, Query(max_length=400)] = "",
) -> Response:
    """Show a run; `asked` names a request that is told of, `wanted` and `at` an act and a step to begin with."""
    run = _there(
        await run_view(connection, scope, run_id, actor=actor, groups=request.state.caller.groups), run_id
    )
    told = next((one for one in run.requests if str(one.id) == asked), None)
    cut = 0 if whole else max(0, len(run.timeline) - _TIMELINE)
    return page(
        request,
        "run.html",
        now=run.now,
        live=f"run:{run.id}",
        run=run,
        trace_url=parts(request).settings.trace_url(run.trace),
        asked=told,
        wanted=wanted,
        at=at,
        timeline=run.timeline[cut:],
        cut=cut,
        chart=chart(run),
    )


async def _seen(connection: Any, scope: Scope, run_id: UUID) -> None:
    """Refuse to act on what may not be seen, as if it were not there."""
    if not await may_follow(connection, scope, f"run:{run_id}"):
        raise Problem(404, "MP604", f"There is no run {run_id}, or it is none that you may see.")


def _there(run: RunView | None, run_id: UUID) -> RunView:
    if run is None:
        raise Problem(404, "MP604", f"There is no run {run_id}, or it is none that you may see.")
    return run


class ActForm(BaseModel):
    """What the form of an act sends.

    Attributes:
        fence, generation, hash: Of the step and of what is asked about it, as the person saw them.
        result: JSON, for mark_succeeded; empty for a step without one.
        undo: For cancel: yes or no.
        role: Those that the person claims, for approve and reject; only what the person has counts.
    """

    act: str = Field(max_length=40)
    reason: str = Field(max_length=4000)
    step: str | None = Field(default=None, max_length=300)
    iteration: str = Field(default="", max_length=100)
    fence: int | None = None
    generation: int | None = None
    hash: str | None = Field(default=None, max_length=128)
    result: str = ""
    undo: str = ""
    did_not_happen: bool = False
    reviewed: bool = False
    role: list[str] = []


@router.post("/runs/{run_id}/acts", dependencies=[needs(*ACTS)])
async def act(
    *, request: Request, actor: Signed, scope: Seen, run_id: UUID, form: Annotated[ActForm, Form()]
) -> Response:
    """Ask for an act, and show what became of it, as the database says."""
    if form.act not in get_args(ActName):
        raise Problem(422, "MP732", "There is no such act.")
    database = parts(request).database
    async with connected(database) as connection:
        await _seen(connection, scope, run_id)
        reviewed = await connection.fetch(acts.Sql.last_review, run_id) if form.reviewed else []
        wish = Wish(
            run=run_id,
            what=cast("ActName", form.act),
            by=actor.name,
            reason=form.reason,
            step=form.step or None,
            iteration=form.iteration,
            fence=form.fence,
            result=_result(form.result) if form.act == "mark_succeeded" else None,
            undo={"yes": True, "no": False}.get(form.undo) if form.act == "cancel" else None,
            did_not_happen=form.did_not_happen,
            reviewed=reviewed[0]["request_id"] if reviewed else None,
            generation=form.generation,
            hash=form.hash,
            roles=await _roles(request, connection, actor, run_id, form),
        )
        outcome = await ask_for(connection, actor, wish, call="the console")
    if outcome.request is None:
        raise Problem(403, outcome.code or "MP660", outcome.text)
    await _until_answered(database, outcome.request)
    return RedirectResponse(f"/runs/{run_id}?asked={outcome.request}#asked", 303)


async def _roles(
    request: Request, connection: Any, actor: Actor, run_id: UUID, form: ActForm
) -> frozenset[str]:
    """Return those of the claimed roles that whoever asks has: as a role of his own there, or as a group."""
    if form.act not in {"approve", "reject"}:
        return frozenset()
    subject = await subject_of(connection, run_id)
    own = {role.value.lower() for role in actor.roles(subject.tenant, subject.saga)}
    return frozenset(form.role) & {*own, *request.state.caller.groups}


class SecondForm(BaseModel):
    """What the form of a second person sends."""

    request: UUID
    decision: Literal["confirm", "decline"]
    reason: str = Field(max_length=4000)


@router.post("/runs/{run_id}/second", dependencies=[needs(Act.CONFIRM, Act.DECLINE)])
async def second(
    *, request: Request, actor: Signed, scope: Seen, run_id: UUID, form: Annotated[SecondForm, Form()]
) -> Response:
    """Confirm or decline, as the second person, what another one has asked for."""
    database = parts(request).database
    async with connected(database) as connection:
        await _seen(connection, scope, run_id)
        waiting = await held(connection, scope, request=form.request, run=run_id)
        if not waiting:
            raise Problem(
                409, "MP662", "It does not wait for a second person any more. Look at the run again."
            )
        decide = confirm if form.decision == "confirm" else decline
        await decide(connection, actor, waiting[0], reason=form.reason)
    await _until_answered(database, form.request)
    return RedirectResponse(f"/runs/{run_id}?asked={form.request}#asked", 303)


def _result(text: str) -> Any:
    """Read the result that was typed in; nothing for a step without one.

    Raises:
        UsageError: MP616 when it is no JSON.
    """
    if not text.strip():
        return None
    try:
        found = codec.loads(text, parse_constant=_no_number)
    except ValueError as error:
        raise UsageError(
            "MP616", f"The result is no JSON ({error}). Write what the step would have returned."
        ) from error
    if "\\u0000" in codec.dumps(found):
        raise UsageError("MP616", "The result holds the character U+0000, which cannot be stored.")
    return found


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is no number of JSON")


async def _until_answered(database: Database, request: UUID) -> None:
    """Wait a moment for the service; what it has not answered by then, the page shows as asked for."""
    loop = asyncio.get_running_loop()
    until = loop.time() + PATIENCE
    while loop.time() < until:
        async with connected(database) as connection:
            found = await request_of(connection, request)
        if found is not None and found.state != "OPEN":
            return
        await asyncio.sleep(_LOOK)


def chart(run: RunView) -> dict[str, Any]:
    """Return the lanes as places on a line from the run's beginning to its end, in a thousandth of it."""
    if not run.lanes:
        return {"lanes": [], "ticks": []}
    begins = min(run.created_at, *(s.begins for lane in run.lanes for s in lane.stretches))
    ends = max(s.ends for lane in run.lanes for s in lane.stretches)
    length = max((ends - begins).total_seconds(), 0.001)

    def place(at: datetime) -> float:
        return round(1000 * (at - begins).total_seconds() / length, 1)

    made = [
        {
            "label": lane.label,
            "stretches": [
                {
                    "x": min(place(s.begins), 996.0),
                    "width": max(place(s.ends) - place(s.begins), 4.0),
                    "tone": s.tone,
                    "words": s.words,
                    "seconds": (s.ends - s.begins).total_seconds(),
                }
                for s in lane.stretches
            ],
        }
        for lane in run.lanes
    ]
    return {"lanes": made, "ticks": [(n * 250, length * n / 4) for n in range(5)], "begins": begins}
