"""The outbox, and replays: those that were, a dry run, and the application of what is missing."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Form, Request
from pydantic import BaseModel
from starlette.responses import RedirectResponse, Response

from ....recovery.acting import Attempt, attempting
from ....recovery.permissions import Act, Actor
from ....schemas.errors import MilepostError, StateError
from ...replay import read_edge
from ...views import flow as view
from ..exporting import MOST, Kind, exported
from ..identity import Connected, Signed
from ..parts import parts
from ..permitting import needs
from ..permitting import refused as refused_of
from ..problems import Problem
from ..rendering import page
from ..replaying import Jobs, job_of, replays_of
from ..rights import NOT_PERMITTED, Offer, offer, reason_of, seen

router = APIRouter(lifespan=replays_of)
#: Seconds that the answer to a form waits for a replay to have an id.
_SOON = 8.0
_PAGE = 50


def _whole(actor: Actor, act: Act) -> None:
    """Hold that whoever asks may see what belongs to no tenant and no saga.

    Raises:
        Problem: 403, MP778.
    """
    if not view.whole(seen(actor, act)):
        raise refused_of(actor, act)


@router.get("/outbox", dependencies=[needs(Act.READ_OUTBOX)])
async def show_outbox(request: Request, actor: Signed, connection: Connected) -> Response:
    """Show how far the relay is, and what it has put aside."""
    _whole(actor, Act.READ_OUTBOX)
    found = await view.outbox(connection)
    unpark = offer(actor, Act.UNPARK, label="Unpark", says="the relay sends them again")
    return page(
        request,
        "outbox.html",
        live="outbox",
        found=found,
        counted_to=view.COUNTED,
        unpark=unpark,
        now=found.now,
    )


@router.get("/outbox.{kind}", dependencies=[needs(Act.READ_OUTBOX)])
async def export_outbox(kind: Kind, actor: Signed, connection: Connected) -> Response:
    """Give what is parked as a file."""
    _whole(actor, Act.READ_OUTBOX)
    return exported(kind, "parked", view.Parked, (await view.outbox(connection)).parked)


@router.get("/replay", dependencies=[needs(Act.READ_REPLAYS)])
async def show_replays(
    request: Request, actor: Signed, connection: Connected, before: UUID | None = None
) -> Response:
    """Show replays, and the form that begins one."""
    return await _show(request, actor, connection, before=before)


async def _show(
    request: Request,
    actor: Actor,
    connection: Any,
    *,
    before: UUID | None = None,
    given: ReplayForm | None = None,
    problem: Problem | None = None,
) -> Response:
    _whole(actor, Act.READ_REPLAYS)
    found = await view.replays(connection, before=before, limit=_PAGE)
    jobs = _jobs(request)
    pages = {
        "shown": len(found.replays),
        "next": f"before={found.next}" if found.next else None,
        "first": "" if before else None,
    }
    return page(
        request,
        "replay.html",
        live="replay",
        status=200 if problem is None else problem.status,
        found=found,
        pages=pages,
        jobs=[job for job in reversed(jobs.jobs) if job.running or job.failed],
        known=await view.replayable(connection),
        application=jobs.application,
        offers=_offers(actor, jobs),
        given=given or ReplayForm(),
        problem=problem,
        running=any(job.running for job in jobs.jobs),
    )


def _offers(actor: Actor, jobs: Jobs) -> dict[str, Offer]:
    why_not = ""
    if jobs.application is None:
        why_not = (
            "The handlers are needed, and this console was told of no application. Start it with MILEPOST_APP, or use "
            "`milepost replay --apply`."
        )
    return {
        "dry": offer(actor, Act.REPLAY_DRY_RUN, label="Look", says="reads the slice and changes nothing"),
        "apply": offer(
            actor,
            Act.REPLAY_APPLY,
            label="Apply what is missing",
            says="once each, with the consumer's own handlers",
            why_not=why_not,
            danger=True,
        ),
    }


def _jobs(request: Request) -> Jobs:
    jobs: Jobs = request.app.state.replays
    return jobs


@router.get("/replay.{kind}", dependencies=[needs(Act.READ_REPLAYS)])
async def export_replays(kind: Kind, actor: Signed, connection: Connected) -> Response:
    """Give them as a file."""
    _whole(actor, Act.READ_REPLAYS)
    return exported(kind, "replays", view.Replay, (await view.replays(connection, limit=MOST)).replays)


class ReplayForm(BaseModel):
    """The form that begins a replay.

    Attributes:
        since: Offsets by partition, a time, or a duration ago; until likewise, '' for as far as it goes.
        act: replay_dry_run or replay_apply.
    """

    consumer: str = ""
    topic: str = ""
    since: str = ""
    until: str = ""
    act: str = Act.REPLAY_DRY_RUN.value
    reason: str = ""


@router.post("/replay", dependencies=[needs(Act.REPLAY_DRY_RUN)])
async def begin_replay(
    request: Request, actor: Signed, connection: Connected, form: Annotated[ReplayForm, Form()]
) -> Response:
    """Begin a replay, and show it."""
    apply = form.act == Act.REPLAY_APPLY.value
    try:
        words = _words(form, apply=apply)
        reason = reason_of(form.reason) if apply else form.reason.strip() or "looked at from the console"
        await _begin(request, actor, connection, words, form, apply=apply, reason=reason)
    except (MilepostError, Problem) as error:
        problem = error if isinstance(error, Problem) else _problem(error)
        if problem.status == 403:
            raise problem from error
        return await _show(request, actor, connection, given=form, problem=problem)
    job = _jobs(request).jobs[-1]
    await job.known(_SOON)
    if job.failed or job.replay is None:
        problem = Problem(409, "MP781", job.said.strip() or "It has not begun yet; it is listed below.")
        return await _show(request, actor, connection, given=form, problem=problem)
    return RedirectResponse(f"/replay/{job.replay}", 303)


def _problem(error: MilepostError) -> Problem:
    return Problem(403 if error.code in NOT_PERMITTED else 422, error.code, error.text)


def _words(form: ReplayForm, *, apply: bool) -> list[str]:
    """Return the command line of a replay.

    Raises:
        Problem: 422, MP779 for what is left out or begins like an option.
        UsageError: MP601 for an edge that cannot be read, MP491 for a partition that is there twice.
    """
    for name in ("consumer", "topic", "since"):
        text = getattr(form, name).strip()
        if not text or text.startswith("-"):
            raise Problem(422, "MP779", f"Say which {name}. Nothing was begun.")
    read_edge("since", form.since.strip())
    words = [form.consumer.strip(), "--topic", form.topic.strip(), "--since", form.since.strip()]
    if form.until.strip():
        read_edge("until", form.until.strip())
        words += ["--until", form.until.strip()]
    return [*words, "--apply"] if apply else words


async def _begin(
    request: Request,
    actor: Actor,
    connection: Any,
    words: list[str],
    form: ReplayForm,
    *,
    apply: bool,
    reason: str,
) -> None:
    act = Act.REPLAY_APPLY if apply else Act.REPLAY_DRY_RUN
    evidence = {"consumer": form.consumer, "topic": form.topic, "since": form.since, "until": form.until}
    attempt = Attempt(act=act, name="replay", reason=reason, evidence=evidence)
    jobs, own = _jobs(request), parts(request)
    async with attempting(connection, actor, attempt, ids=own.ids):
        if apply and jobs.application is None:
            raise StateError("MP490", _offers(actor, jobs)["apply"].why_not)
        job = job_of(
            own.clock,
            consumer=form.consumer,
            topic=form.topic,
            apply=apply,
            looks_first="--apply" in words,
            by=actor.name,
            reason=reason,
        )
        jobs.begin(
            [*words, *([f"--reason={reason}"] if apply and "--apply" in words else [])],
            job,
            own.settings.core,
        )


@router.get("/replay/{replay_id}", dependencies=[needs(Act.READ_REPLAYS)])
async def show_replay(request: Request, replay_id: UUID, actor: Signed, connection: Connected) -> Response:
    """Show a replay: how far it is, and what it has found."""
    _whole(actor, Act.READ_REPLAYS)
    try:
        one, findings = await view.replay(connection, replay_id)
    except MilepostError as error:
        raise Problem(404, error.code, error.text) from error
    job = next((job for job in _jobs(request).jobs if replay_id in job.replays), None)
    resume = offer(actor, Act.REPLAY_APPLY if one.apply else Act.REPLAY_DRY_RUN, label="Resume")
    return page(
        request,
        "replay_one.html",
        live="replay",
        one=one,
        findings=findings,
        job=job,
        resume=resume,
        running=one.finished_at is None and not one.interrupted,
        offers=_offers(actor, _jobs(request)),
        since=_written(one.begins),
        until=_written(one.ends),
    )


def _written(offsets: dict[int, int]) -> str:
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(offsets.items()))


@router.get("/replay/{replay_id}/findings.{kind}", dependencies=[needs(Act.READ_REPLAYS)])
async def export_findings(kind: Kind, replay_id: UUID, actor: Signed, connection: Connected) -> Response:
    """Give what a replay has found as a file."""
    _whole(actor, Act.READ_REPLAYS)
    _, findings = await view.replay(connection, replay_id)
    return exported(kind, f"replay-{replay_id}", view.Finding, findings)


@router.post("/replay/{replay_id}/resume", dependencies=[needs(Act.REPLAY_DRY_RUN)])
async def resume_replay(
    request: Request,
    replay_id: UUID,
    actor: Signed,
    connection: Connected,
    reason: Annotated[str, Form()] = "",
) -> Response:
    """Have a replay that was interrupted go on."""
    _whole(actor, Act.READ_REPLAYS)
    one, _ = await view.replay(connection, replay_id)
    form = ReplayForm(consumer=one.consumer, topic=one.topic, since=one.slice)
    if one.finished_at is not None:
        return RedirectResponse(f"/replay/{replay_id}", 303)
    words = [one.consumer, "--resume", str(replay_id)]
    try:
        await _begin(request, actor, connection, words, form, apply=one.apply, reason=reason_of(reason))
    except StateError as error:
        raise _problem(error) from error
    await _jobs(request).jobs[-1].known(_SOON)
    return RedirectResponse(f"/replay/{replay_id}", 303)
