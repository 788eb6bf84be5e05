"""The whole of it: orders of every kind, kills, a person at the command line, and the ledgers compared."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from contextlib import suppress
from time import monotonic

from ..stage.kills import Kills
from ..stage.play import Place, play
from ..stage.processes import milepost
from .book import orders, stock
from .facts import ENDED, effects, runs
from .person import Person, Word
from .processes import Fleet
from .report import Result, last_line
from .traffic import Traffic
from .verdict import Said, compare

#: It is given up when no order ends and no person says anything for so long, in seconds.
DEADLINE = 60.0
#: Pause between two looks at the runs, in seconds; a look starts a process.
LOOK = 2.0


def run(count: int) -> int:
    """Run it once; returns the exit status of `stage.play`, 1 when the books do not agree.

    Args:
        count: How many orders; from 20 on every kind occurs.
    """
    return play("order", lambda place: _rehearse(place, count))


async def _rehearse(place: Place, count: int) -> int:
    placed = orders(place.tag, count)
    there = stock(placed)
    fleet = Fleet(place.folder, place.env, place.tag, there)
    begun = monotonic()
    try:
        await place.begin(fleet)
        person = Person(fleet.env, lambda word: place.say(f"  {word.by}: {word.answer}", "dim"))
        traffic = Traffic(fleet, placed, Kills(fleet, place.say), lambda: len(person.words))
        states = await fleet.watched(_drive(traffic, person))
        shown = next((word.order_id for word in person.words if word.said == "reject"), "")
        if shown:
            place.say((await milepost(fleet.env, "runs", "show", f"order/{shown}")).rstrip())
    finally:
        fleet.stop()
    verdict = compare(traffic.accepted, states, await effects(fleet), there, said(person.words))
    result = Result(verdict, traffic.kills.done, person.words, monotonic() - begun)
    return place.end(result.faults, result.as_json(), last_line(result))


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
    parser.add_argument("--count", type=int, default=40, help="how many orders; 20 is the least (default 40)")
    given = parser.parse_args(words)
    if given.count < 20:
        parser.error("--count: 20 or more, or some kinds do not occur")
    return run(given.count)


if __name__ == "__main__":
    sys.exit(main())
