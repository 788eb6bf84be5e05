"""A service whose runs are refused at their last step, and look again before they go on. RESUME_FOLDER holds orders.

A file `refuse` has every sending refused; the text of `doubt-NAME` is what the check of the job of that name answers:
HANG for never, REFUSE for a refusal, else a reason to look.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from milepost import Artifact, Context, Milepost, Refused, Repeat, Saga, Then
from pydantic import BaseModel

FOLDER = Path(os.environ.get("RESUME_FOLDER", "."))
SERVICE = os.environ.get("RESUME_SERVICE", "resuming")
PROMPT = os.environ.get("RESUME_PROMPT", "1")
#: A file that says that a check has begun.
CHECKED = "checked"


class Job(BaseModel):
    name: str


class Written(BaseModel):
    text: Artifact


job = Saga(
    "job",
    version=1,
    input=Job,
    key=lambda given: given.name,
    fingerprint=lambda given: {"task": given.name, "prompt": PROMPT},
)


@job.step(repeat=Repeat.SAFE)
async def write(ctx: Context[Job]) -> Written:
    return Written(text=await ctx.artifact("text.md", ctx.input.name.encode(), type="text/markdown"))


@job.step(repeat=Repeat.SAFE, on_failure=Then.PERSON)
async def send(ctx: Context[Job]) -> None:
    if (FOLDER / "refuse").exists():
        raise Refused("TOLD_TO")
    assert await ctx.read_artifact(ctx.result(write).text) == ctx.input.name.encode()


@job.revalidate
async def still_right(ctx: Context[Job]) -> str | None:
    order = FOLDER / f"doubt-{ctx.input.name}"
    (FOLDER / CHECKED).touch()
    if not order.exists():
        return None
    text = order.read_text()
    if text == "HANG":
        await asyncio.Event().wait()
    if text == "REFUSE":
        raise Refused("COMMIT_GONE", "it is no longer in the repository")
    return text


job.flow(write, send)

service = Milepost(SERVICE, sagas=[job])
