"""A service that writes reports as artifacts. What a report says its process does: REPORT_FOLDER holds orders.

A file `die-NAME` in that folder ends the process by SIGKILL, once, when the report of that name has been written and
nothing of it is recorded; `refuse-NAME` has its publishing refused as long as it is there.
"""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

from milepost import Artifact, Context, Milepost, Refused, Repeat, Saga, Then
from pydantic import BaseModel

FOLDER = Path(os.environ.get("REPORT_FOLDER", "."))
SERVICE = os.environ.get("REPORT_SERVICE", "reports")
#: Bytes of the big artifact: more than one part of an upload.
BIG = 9_000_000


class Day(BaseModel):
    name: str


class Written(BaseModel):
    report: Artifact
    pages: list[Artifact]


class Published(BaseModel):
    size: int


report = Saga("report", version=1, input=Day, key=lambda day: day.name)


def text_of(name: str) -> bytes:
    """Return the report of a name."""
    return f"# {name}\n".encode() * 50


async def many(name: str) -> AsyncIterator[bytes]:
    """Return the big page of a name, piece by piece."""
    for _ in range(BIG // 9):
        yield name.ljust(9)[:9].encode()


@report.step(repeat=Repeat.SAFE)
async def write(ctx: Context[Day]) -> Written:
    name = ctx.input.name
    made = await ctx.artifact("report.md", text_of(name), type="text/markdown")
    page = await ctx.artifact("pages/1.txt", many(name), type="text/plain")
    order = FOLDER / f"die-{name}"
    if order.exists():
        order.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    return Written(report=made, pages=[page])


@report.step(repeat=Repeat.SAFE, on_failure=Then.PERSON)
async def publish(ctx: Context[Day]) -> Published:
    if (FOLDER / f"refuse-{ctx.input.name}").exists():
        raise Refused("TOLD_TO")
    made = ctx.result(write)
    text = await ctx.read_artifact(made.report)
    assert text == text_of(ctx.input.name)
    await ctx.save_artifact(made.pages[0], FOLDER / f"published-{ctx.input.name}")
    return Published(size=len(text) + made.pages[0].size)


report.flow(write, publish)

service = Milepost(SERVICE, sagas=[report])
