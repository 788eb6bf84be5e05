"""The whole of it: orders of every kind, kills, a person at the command line, and the ledgers compared."""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic

from milepost.devstack.errors import DevstackError
from rich.console import Console
from rich.text import Text

from ..stage.processes import DemoFailed, milepost
from ..stage.servers import ending_on_sigterm, own_database, stack
from .book import orders, stock
from .facts import ENDED, effects, runs
from .person import Person, Word
from .processes import Fleet
from .report import Result, last_line
from .traffic import Traffic
from .verdict import Said, compare

#: Where logs and ledgers go, seen from the folder in which it is started.
FOLDER = Path("build/order")
#: It is given up when no order ends and no person says anything for so long, in seconds.
DEADLINE = 60.0
#: Pause between two looks at the runs, in seconds; a look starts a process.
LOOK = 2.0


def run(count: int) -> int:
    """Run it once.

    Args:
        count: How many orders; from 20 on every kind occurs.

    Returns:
        0 when the books agree, 1 when they do not, 4 when it could not be carried out, 130 when it was stopped.
    """
    console = Console(soft_wrap=True, highlight=False)
    folder = FOLDER.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    tag = f"o{secrets.token_hex(2)}"
    try:
        with ending_on_sigterm(), stack(False, console) as servers:
            with own_database(servers.database_url, f"order_{tag}") as url:
                env = {**servers.env(), "MILEPOST_DATABASE_URL": url}
                result = asyncio.run(_rehearse(console, folder, env, count, tag))
    except (DemoFailed, DevstackError) as error:
        console.print(Text(f"order failed: {error}", style="bold red"))
        return 4
    except KeyboardInterrupt:
        console.print("order stopped; its processes have been stopped too")
        return 130
    for line in result.faults:
        console.print(Text(line, style="bold red"))
    (folder / "result.json").write_text(json.dumps(result.as_json(), indent=2) + "\n")
    console.print(last_line(result))
    return 1 if result.faults else 0


async def _rehearse(console: Console, folder: Path, env: Mapping[str, str], count: int, tag: str) -> Result:
    placed = orders(tag, count)
    there = stock(placed)
    fleet = Fleet(folder, env, tag, there)
    begun = monotonic()
    try:
        await milepost(fleet.env, "migrate")
        fleet.start()
        await fleet.watched(fleet.come_up())
        console.print(f"{len(fleet)} processes are ready after {monotonic() - begun:.1f} s")
        person = Person(
            fleet.env, lambda word: console.print(Text(f"  {word.by}: {word.answer}", style="dim"))
        )
        traffic = Traffic(fleet, placed, console.print, lambda: len(person.words))
        states = await fleet.watched(_drive(traffic, person))
        shown = next((word.order_id for word in person.words if word.said == "reject"), "")
        if shown:
            console.print(Text((await milepost(fleet.env, "runs", "show", f"order/{shown}")).rstrip()))
    finally:
        fleet.stop()
    verdict = compare(traffic.accepted, states, await effects(fleet), there, said(person.words))
    return Result(verdict, traffic.kills, person.words, monotonic() - begun)


async def _drive(traffic: Traffic, person: Person) -> dict[str, str]:
    """Let orders come in and persons decide until every run is at its end; returns their states."""
    deciding = asyncio.create_task(person.work(traffic.open_for_persons))
    try:
        await traffic.run()
        return await _until_ended(traffic, person, deciding)
    finally:
        deciding.cancel()
        with suppress(asyncio.CancelledError):
            await deciding  # what it could not carry out is raised here


async def _until_ended(traffic: Traffic, person: Person, deciding: asyncio.Task[None]) -> dict[str, str]:
    moved, before = monotonic(), (0, 0)
    while True:
        found = await runs(traffic.fleet.env, len(traffic.orders) + 100)
        states = {order_id: str(run["state"]) for order_id, run in found.items()}
        ended = sum(state in ENDED for state in states.values())
        if (ended, len(person.words)) != before:
            moved, before = monotonic(), (ended, len(person.words))
        if ended >= len(traffic.orders) or deciding.done() or monotonic() > moved + DEADLINE:
            return states
        await asyncio.sleep(LOOK)


def said(words: Sequence[Word]) -> Said:
    """Sum up what persons said: what counts is the last word about each order."""
    last = {word.order_id: word.said for word in words}
    return Said(
        approved=frozenset(order_id for order_id, word in last.items() if word == "approve"),
        refused=frozenset(order_id for order_id, word in last.items() if word == "reject"),
    )


def main(words: Sequence[str] | None = None) -> int:
    """Run it as a program."""
    parser = argparse.ArgumentParser(
        prog="order", description="Orders of every kind, three kills, a person at the command line, verdict."
    )
    parser.add_argument("--count", type=int, default=40, help="how many orders (default 40)")
    given = parser.parse_args(words)
    if given.count < 20:
        parser.error("--count: 20 or more, or some kinds do not occur")
    return run(given.count)


if __name__ == "__main__":
    sys.exit(main())
