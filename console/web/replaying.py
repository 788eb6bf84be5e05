"""Replays that a page has begun: each a process of its own, as `milepost replay` is, and few at a time.

A process keeps a handler's code, and its memory, out of the console. What it has done is in `milepost.replay`, so that
every console shows it, and one that was interrupted goes on from there.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from starlette.applications import Starlette

from ...schemas.ids import Clock
from ...schemas.settings import Settings
from ..application import app_name
from ..options import Globals
from ..output import Output
from .problems import Problem

#: Replays of this console at a time, and seconds after which one is ended; it can be resumed.
AT_ONCE, LONGEST = 2, 3_600
_BEGUN = re.compile(r"replay ([0-9a-f-]{36}): ")
#: Finished ones that are remembered, with what they said.
_KEPT = 20
_SAID = 4_000


@dataclass
class Job:
    """A replay that this console has begun.

    Attributes:
        looks_first: Whether it begins one that only looks, and then one that applies what was missing.
        replays: Ids of what it has begun.
        status: Exit status; None while it runs. 0 and 1 are those of a replay that ended.
        said: The end of what it wrote.
    """

    consumer: str
    topic: str
    apply: bool
    looks_first: bool
    by: str
    reason: str
    at: datetime
    replays: list[UUID] = field(default_factory=list)
    status: int | None = None
    said: str = ""
    _known: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def replay(self) -> UUID | None:
        """The last one that it has begun."""
        return self.replays[-1] if self.replays else None

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self.status is None

    @property
    def failed(self) -> bool:
        """Whether it ended without a result."""
        return self.status not in {None, 0, 1}

    async def known(self, within: float) -> None:
        """Wait until it has begun what it was asked for, or has ended, or so many seconds."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._known.wait(), within)


class Jobs:
    """The replays of one console."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def application(self) -> str | None:
        """The application whose handlers an apply needs; None when the console was told of none."""
        return app_name(Globals(Output(as_json=True)))

    def begin(self, words: Sequence[str], job: Job, settings: Settings) -> None:
        """Begin one.

        Args:
            words: Of the command line, after `milepost replay`.

        Raises:
            Problem: 409, MP780 when as many run as may.
        """
        if sum(1 for one in self.jobs if one.running) >= AT_ONCE:
            detail = (
                f"{AT_ONCE} replays run here already. Wait until one has ended, or use `milepost replay`."
            )
            raise Problem(409, "MP780", detail)
        self.jobs = [one for one in self.jobs if one.running] + [one for one in self.jobs if not one.running][
            -_KEPT:
        ]
        self.jobs.append(job)
        task = asyncio.create_task(_run(words, job, settings))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """End what runs; a replay can be resumed."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _run(words: Sequence[str], job: Job, settings: Settings) -> None:
    environment = {
        **os.environ,
        "MILEPOST_DATABASE_URL": str(settings.database_url),
        "MILEPOST_KAFKA": settings.kafka,
        "PYTHONUNBUFFERED": "1",
    }
    command = (sys.executable, "-m", "milepost.console.main", "--yes", f"--as={job.by}", "replay", *words)
    process = None
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(LONGEST):
            await _follow(process, job)
            job.status = await process.wait()
    except TimeoutError:
        job.said = f"It was ended after {LONGEST // 60} minutes; resume it. {job.said}"
    except OSError as error:
        job.said = f"It could not be begun: {error}"
    finally:
        if process is not None and process.returncode is None:
            process.terminate()
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), 5)
            if process.returncode is None:
                process.kill()
        if job.status is None:
            job.status = -1
        job._known.set()


async def _follow(process: asyncio.subprocess.Process, job: Job) -> None:
    """Read what it says, a line at a time and never more than is kept."""
    assert process.stderr is not None
    async for line in process.stderr:
        text = line.decode(errors="replace")
        job.said = (job.said + text)[-_SAID:]
        begun = _BEGUN.search(text)
        if begun:
            job.replays.append(UUID(begun[1]))
            if len(job.replays) > job.looks_first:
                job._known.set()


def job_of(
    clock: Clock, *, consumer: str, topic: str, apply: bool, looks_first: bool, by: str, reason: str
) -> Job:
    """Return a job that begins now."""
    return Job(consumer, topic, apply, looks_first, by, reason, clock.now())


@asynccontextmanager
async def replays_of(app: Starlette) -> AsyncGenerator[None]:
    """Keep the replays of a console, in `app.state.replays`, and end them with it."""
    app.state.replays = jobs = Jobs()
    try:
        yield
    finally:
        await jobs.close()
