"""The whole of it: three campaigns under fire, and the provider's ledger compared with them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from time import monotonic

from ..stage.kills import Kills
from ..stage.play import Place, play
from .book import campaigns, readers
from .facts import collect
from .person import Person
from .processes import Fleet
from .progress import Progress
from .report import Result
from .traffic import Traffic
from .verdict import compare

#: The provider takes as many calls a second as it needs to send all of them in this time, in seconds, so that the kills
#: fall into it.
LASTS = 20


def run(count: int) -> int:
    """Run it once; returns the exit status of `stage.play`, 1 when the books do not agree.

    Args:
        count: How many recipients the greatest campaign has.
    """
    return play("campaign", lambda place: _rehearse(place, count))


async def _rehearse(place: Place, count: int) -> int:
    people, chosen = readers(count), campaigns(place.tag)
    fleet = Fleet(place.folder, place.env, place.tag, rate=max(count // LASTS, 1))
    begun = monotonic()
    try:
        await place.begin(fleet)
        progress = Progress(fleet, place.say)
        person = Person(fleet.env, fleet.provider, progress, place.say)
        traffic = Traffic(fleet, people, chosen, Kills(fleet, place.say), progress, person)
        await fleet.watched(traffic.run())
        facts = await collect(fleet, people, traffic.placed, chosen.ends)
    finally:
        fleet.stop()
    seconds = monotonic() - begun
    result = Result(chosen, compare(facts), traffic.kills.done, person.words, seconds)
    place.console.print(result.table())
    return place.end(result.faults, result.as_json(), result.last_line)


def main(words: Sequence[str] | None = None) -> int:
    """Run it as a program."""
    parser = argparse.ArgumentParser(
        prog="campaign", description="Three campaigns, three kills, a person at the command line, verdict."
    )
    parser.add_argument(
        "--recipients", type=int, default=1000, help="how many recipients; 200 is the least (default 1000)"
    )
    given = parser.parse_args(words)
    if given.recipients < 200:
        parser.error("--recipients: 200 or more, or it is over before all kills")
    return run(given.recipients)


if __name__ == "__main__":
    sys.exit(main())
