"""A daily report as a saga: collect, build, write and check (and anew), save, publish, record."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TypeAlias

from milepost import (
    Absent,
    Context,
    Found,
    Probe,
    QualityFailed,
    Repeat,
    Retry,
    Saga,
    Then,
    Transaction,
    loop,
)

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
    """Have it written; where the answer before could not be used, with what was wrong."""
    task, before = ctx.result(build), ctx.fell_short
    model = ctx.use(Model)
    text = await model.write(task.text if before is None else brief.again(task, before.message))
    answer = await ctx.artifact("report.md", text.encode(), type="text/markdown")
    return Draft(answer=answer, model=model.name, tries=ctx.round)


@report.step(repeat=Repeat.SAFE)
async def check(ctx: Ctx) -> None:
    """Look whether it may be published; with what is wrong the round ends, and the next begins with that."""
    text = (await ctx.read_artifact(ctx.result(write).answer)).decode()
    found = checks.problems(text, ctx.input, ctx.result(collect))
    if found:
        raise QualityFailed("UNFIT", "\n".join(found))


#: A failure of quality, not of a tool: it is not tried again as it is, but written anew, so often and no more.
writing = loop(
    write,
    check,
    until=lambda view: True,
    at_most=MOST_TRIES,
    on_failure=Then.PERSON,
    name="writing",
)


@report.step(repeat=Repeat.SAFE)
async def save(ctx: Ctx) -> Saved:
    """Keep it as a file."""
    text = await ctx.read_artifact(ctx.result(write).answer)
    place = Config().folder.absolute() / f"{ctx.input.key}.md"
    return await asyncio.to_thread(files.save, place, text.decode())


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
        ctx.result(write).tries,
    )


report.flow(collect, build, writing, save, publish, record)
