"""The whole of it: a service under fire, and the provider's book compared with the jobs."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from time import monotonic

from ..stage.kills import Kill, Kills
from ..stage.play import Place, play
from .ledger import Ledger
from .processes import Fleet
from .status import Job, jobs, table
from .traffic import Traffic
from .verdict import Verdict, compare

#: All jobs have to be at their end this long after the last one came in, in seconds.
DEADLINE = 90.0
#: How many processes are killed.
KILLS = 3


def run(count: int) -> int:
    """Run it once; returns the exit status of `stage.play`, 1 when the two books do not agree.

    Args:
        count: How many jobs; from 20 on every fault occurs.
    """
    return play("notify", lambda place: _rehearse(place, count))


async def _rehearse(place: Place, count: int) -> int:
    fleet = Fleet(place.folder, place.env, place.tag)
    begun = monotonic()
    try:
        await place.begin(fleet)
        traffic = Traffic(fleet, count, place.tag, Kills(fleet, place.say))
        found = await fleet.watched(_drive(traffic))
    finally:
        fleet.stop()
    ledger = Ledger(fleet.ledger)
    try:
        verdict = compare(traffic.accepted, found, ledger.messages(), ledger.hooks())
    finally:
        ledger.close()
    place.console.print(table(_worth_seeing(found)))
    kills = traffic.kills.done
    result = _result(verdict, kills, monotonic() - begun)
    return place.end(faults(verdict, len(kills)), result, last_line(verdict, len(kills)))


async def _drive(traffic: Traffic) -> list[Job]:
    await traffic.run()
    end = monotonic() + DEADLINE
    while True:
        found = await jobs(traffic.fleet.env, limit=traffic.count + 100)
        if all(job.ended for job in found) or monotonic() > end:
            return found
        await asyncio.sleep(1)


def faults(verdict: Verdict, kills: int) -> list[str]:
    """Return everything that keeps it from being ok, in words."""
    found = [f"{item.kind}: {item.notification}: {item.text}" for item in verdict.findings]
    if kills != KILLS:
        found.append(f"{kills} kills instead of {KILLS}")
    for word in ("DELIVERED", "BOUNCED", "FAILED"):
        if not verdict.ended[word]:
            found.append(f"no notification {word}, so it shows nothing about that")
    if not verdict.forged:
        found.append("no forged report, so it shows nothing about that")
    return found


def last_line(verdict: Verdict, kills: int) -> str:
    """Return the line that sums it up."""
    said = "ok" if not faults(verdict, kills) else "failed"
    ended = ", ".join(f"{verdict.ended[word]} {word.lower()}" for word in ("DELIVERED", "BOUNCED", "FAILED"))
    return (
        f"notify {said}: {verdict.jobs} notifications, {ended}, {kills} kills, "
        f"{verdict.count('lost')} lost, {verdict.count('doubled')} doubled"
    )


def _worth_seeing(found: Sequence[Job]) -> list[Job]:
    """Choose one of each word, and everything that has not ended well."""
    firsts = {job.word: job for job in found}
    return [job for job in found if firsts[job.word] is job or not job.ended]


def _result(verdict: Verdict, kills: Sequence[Kill], seconds: float) -> dict[str, object]:
    return {
        "notifications": verdict.jobs,
        "ended": dict(verdict.ended),
        "messages": verdict.messages,
        "reports": verdict.reports,
        "forged": verdict.forged,
        "kills": [[kill.process, kill.pid, kill.work] for kill in kills],
        "seconds": round(seconds, 1),
    }


def main(words: Sequence[str] | None = None) -> int:
    """Run it as a program."""
    parser = argparse.ArgumentParser(
        prog="notify", description="Notifications through a bad provider, three kills, verdict."
    )
    parser.add_argument(
        "--count", type=int, default=100, help="how many notifications; 20 is the least (default 100)"
    )
    given = parser.parse_args(words)
    if given.count < 20:
        parser.error("--count: 20 or more, or some faults do not occur")
    return run(given.count)


if __name__ == "__main__":
    sys.exit(main())
