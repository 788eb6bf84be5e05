"""What `report run` and `report resume` do: begin or go on, and have a process of the service work until it is over."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from typing import Any

from rich.console import Console

from ..stage.processes import DemoFailed, Fleet, milepost
from .contracts import DailyReport
from .saga import report
from .service import TABLE, service
from .status import Standing, held_step, standings

#: Pause between two looks at the service's own table, and at the run, in seconds; the latter starts a process.
_LOOK, _LOOK_CLOSER = 0.2, 3.0
_DONE = "SELECT path, sha256, url, tries FROM daily_report WHERE key = $1"


async def run(console: Console, env: Mapping[str, str], folder: Path, wanted: DailyReport) -> int:
    """Begin a report, or go on with one that was begun, and stay until it is over.

    Args:
        env: Where the servers are.
        folder: Where the engine's log goes.

    Returns:
        Exit status: 0 published, 1 failed or in front of a person.

    Raises:
        DemoFailed: The service's process has ended by itself; the report can be resumed.
    """
    await milepost(env, "migrate")
    async with service.transaction() as tx:
        await tx.connection.execute(TABLE)
        begun = await service.start(tx, report, wanted)
    console.print(str(begun))
    return await _worked(console, env, folder, wanted, retry="")


async def resume(console: Console, env: Mapping[str, str], folder: Path, wanted: DailyReport) -> int:
    """Go on with a report after the last step that had finished; see `run`."""
    found = await standings(env, wanted.key)
    if not found:
        console.print(f"there is no report {wanted.key}; `report run` begins it")
        return 1
    held = await held_step(env, wanted.key) if found[0].word == "NEEDS A PERSON" else ""
    return await _worked(console, env, folder, wanted, retry=held)


async def _worked(
    console: Console, env: Mapping[str, str], folder: Path, wanted: DailyReport, *, retry: str
) -> int:
    if done := await _done(wanted.key):
        console.print(_published(done))
        await service.close()
        return 0
    fleet = Fleet(folder, env)
    fleet.add_serve("engine", "", {})
    try:
        fleet.start()
        console.print(f"engine: pid {fleet.pids['engine']}, log {folder / 'engine.log'}")
        await fleet.watched(fleet.come_up())
        if retry:
            words = ("--reason", "report resume", "--wait", "30")
            console.print(
                (await milepost(env, "runs", "retry", f"report/{wanted.key}", retry, *words)).strip()
            )
        return await fleet.watched(_followed(console, env, wanted.key))
    except DemoFailed as error:
        raise DemoFailed(f"{error}\n`report resume` goes on after the last finished step") from None
    finally:
        fleet.stop()
        await service.close()


async def _followed(console: Console, env: Mapping[str, str], key: str) -> int:
    """Wait for the report's end and print it."""
    closer = monotonic() + _LOOK_CLOSER
    while True:
        if done := await _done(key):
            console.print(_published(done))
            return 0
        if monotonic() > closer:
            now = (await standings(env, key))[0]
            if now.ended and now.word != "PUBLISHED":
                console.print(_words(now))
                return 1
            closer = monotonic() + _LOOK_CLOSER
        await asyncio.sleep(_LOOK)


async def _done(key: str) -> Mapping[str, Any] | None:
    async with service.transaction() as tx:
        found: Mapping[str, Any] | None = await tx.connection.fetchrow(_DONE, key)
    return found


def _published(done: Mapping[str, Any]) -> str:
    return f"PUBLISHED {done['url']}, written in {done['tries']} tries, kept in {done['path']} ({done['sha256']})"


def _words(now: Standing) -> str:
    shown = f"`milepost runs show report/{now.key}` says more"
    if now.word == "NEEDS A PERSON":
        return f"{now.word} at {now.step}: {now.reason}. {shown}; `report resume` has it tried once more"
    return f"{now.word}: {now.reason}. {shown}"
