"""A daily report as a saga: collect, build, write (and write anew), save, publish, record."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import TypeAlias

from milepost import Absent, Context, Found, Probe, Refused, Repeat, Retry, Saga, Then, Transaction

from . import brief, checks, files, repository
from .clients import Model, Pages
from .contracts import Brief, Collected, Config, DailyReport, Draft, Page, Saved

#: How many answers the model may give before a person is asked.
MOST_TRIES = 3
#: How long the page server may still make a page after that try's lease has ended; then "absent" counts.
SETTLE = timedelta(seconds=2)
#: For servers that are away: eight tries over about a minute.
PATIENT = Retry(attempts=8, first=timedelta(seconds=1), cap=timedelta(seconds=20))

Ctx: TypeAlias = Context[DailyReport]

report = Saga("report", version=1, input=DailyReport, key=lambda wanted: wanted.key)


@report.step(repeat=Repeat.SAFE)
async def collect(ctx: Ctx) -> Collected:
    """Read the day's commits; nothing is written to the repository."""
    return await repository.collect(ctx.input.repo, ctx.input.day)


@report.step(repeat=Repeat.SAFE)
async def build(ctx: Ctx) -> Brief:
    """Write the model's task."""
    return brief.build(ctx.input, ctx.result(collect))


@report.step(repeat=Repeat.SAFE, retry=PATIENT, attempt_timeout=timedelta(minutes=10))
async def write(ctx: Ctx) -> Draft:
    """Have it written."""
    return await _written(ctx, ctx.result(build).text, tries=1)


@report.step(repeat=Repeat.SAFE, retry=PATIENT, attempt_timeout=timedelta(minutes=10))
async def write_anew(ctx: Ctx) -> Draft:
    """Have it written anew, where the first answer cannot be used."""
    return await _improved(ctx, ctx.result(write))


@report.step(repeat=Repeat.SAFE, retry=PATIENT, attempt_timeout=timedelta(minutes=10), on_failure=Then.PERSON)
async def write_last(ctx: Ctx) -> Draft:
    """Have it written for the last time, where that is needed; a person is asked when it cannot be used either."""
    draft = await _improved(ctx, ctx.result(write_anew))
    if draft.problems:
        raise Refused("NOT_GOOD_ENOUGH", "; ".join(draft.problems))
    return draft


@report.step(repeat=Repeat.SAFE)
async def save(ctx: Ctx) -> Saved:
    """Keep it as a file."""
    return await asyncio.to_thread(files.save, _place(ctx, ".md"), ctx.result(write_last).text)


@report.step(
    repeat=Repeat.ASK_FIRST, retry=PATIENT, on_failure=Then.PERSON
)  # a second call makes a second page
async def publish(ctx: Ctx) -> Page:
    """Make the page, from the file; the model is not asked again, whatever becomes of this."""
    text = await asyncio.to_thread(files.load, ctx.result(save))
    heading = checks.title(ctx.input).removeprefix("# ")
    return await ctx.use(Pages).make(ctx.input.key, heading, text)


@publish.probe(settle=SETTLE)
async def find_page(ctx: Ctx) -> Probe[Page]:
    """Look the page up by our id of it."""
    page = await ctx.use(Pages).find(ctx.input.key)
    return Absent() if page is None else Found(page)


@report.tx_step(on_failure=Then.PERSON)
async def record(ctx: Ctx, tx: Transaction) -> None:
    """Note where it is, with this step's checkpoint."""
    saved = ctx.result(save)
    await tx.connection.execute(
        "INSERT INTO daily_report (key, path, sha256, url, brief, tries) VALUES ($1, $2, $3, $4, $5, $6)",
        ctx.input.key,
        saved.path,
        saved.sha256,
        ctx.result(publish).url,
        ctx.result(build).sha256,
        ctx.result(write_last).tries,
    )


report.flow(collect, build, write, write_anew, write_last, save, publish, record)


async def _written(ctx: Ctx, task: str, *, tries: int) -> Draft:
    """Ask the model, look at its answer, and keep it beside the reports, good or bad."""
    model = ctx.use(Model)
    text = await model.write(task)
    await asyncio.to_thread(files.save, _place(ctx, f".try-{tries}.md"), text)
    found = checks.problems(text, ctx.input, ctx.result(collect))
    return Draft(text=text, model=model.name, tries=tries, problems=found)


async def _improved(ctx: Ctx, draft: Draft) -> Draft:
    """Return a draft that is good as it is; of another have a better one written."""
    if not draft.problems:
        return draft
    return await _written(ctx, brief.again(ctx.result(build), draft.problems), tries=draft.tries + 1)


def _place(ctx: Ctx, ending: str) -> Path:
    return Config().folder.absolute() / f"{ctx.input.key}{ending}"
