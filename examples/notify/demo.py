"""The whole of it: a service under fire, and the provider's book compared with the jobs."""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic

from milepost.devstack.errors import DevstackError
from rich.console import Console
from rich.text import Text

from ..stage.processes import DemoFailed, milepost
from ..stage.servers import ending_on_sigterm, own_database, stack
from .ledger import Ledger
from .processes import Fleet
from .status import Job, jobs, table
from .traffic import Traffic
from .verdict import Verdict, compare

#: Where logs and ledgers go, seen from the folder in which it is started.
FOLDER = Path("build/notify")
#: All jobs have to be at their end this long after the last one came in, in seconds.
DEADLINE = 90.0
#: How many processes are killed.
KILLS = 3


def run(count: int) -> int:
    """Run it once.

    Args:
        count: How many jobs; from 20 on every fault occurs.

    Returns:
        0 when the two books agree, 1 when they do not, 4 when it could not be carried out, 130 when it was stopped.
    """
    console = Console(soft_wrap=True, highlight=False)
    folder = FOLDER.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    tag = f"n{secrets.token_hex(2)}"
    try:
        with ending_on_sigterm(), stack(False, console) as servers:
            with own_database(servers.database_url, f"notify_{tag}") as url:
                env = {**servers.env(), "MILEPOST_DATABASE_URL": url}
                return asyncio.run(_rehearse(console, folder, env, count, tag))
    except (DemoFailed, DevstackError) as error:
        console.print(Text(f"notify failed: {error}", style="bold red"))
        return 4
    except KeyboardInterrupt:
        console.print("notify stopped; its processes have been stopped too")
        return 130


async def _rehearse(console: Console, folder: Path, env: Mapping[str, str], count: int, tag: str) -> int:
    fleet = Fleet(folder, env, tag)
    begun = monotonic()
    try:
        await milepost(fleet.env, "migrate")
        fleet.start()
        await fleet.watched(fleet.come_up())
        console.print(f"{len(fleet)} processes are ready after {monotonic() - begun:.1f} s")
        traffic = Traffic(fleet, count, tag, console.print)
        found = await fleet.watched(_drive(traffic))
    finally:
        fleet.stop()
    ledger = Ledger(fleet.ledger)
    try:
        verdict = compare(traffic.accepted, found, ledger.messages(), ledger.hooks())
    finally:
        ledger.close()
    console.print(table(_worth_seeing(found)))
    wrong = faults(verdict, len(traffic.kills))
    for line in wrong:
        console.print(Text(line, style="bold red"))
    _write(folder / "result.json", verdict, traffic, wrong, monotonic() - begun)
    console.print(last_line(verdict, len(traffic.kills)))
    return 1 if wrong else 0


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


def _write(path: Path, verdict: Verdict, traffic: Traffic, wrong: Sequence[str], seconds: float) -> None:
    content = {
        "ok": not wrong,
        "notifications": verdict.jobs,
        "ended": dict(verdict.ended),
        "messages": verdict.messages,
        "reports": verdict.reports,
        "forged": verdict.forged,
        "kills": [[kill.process, kill.pid, kill.work] for kill in traffic.kills],
        "faults": list(wrong),
        "seconds": round(seconds, 1),
    }
    path.write_text(json.dumps(content, indent=2) + "\n")


def main(words: Sequence[str] | None = None) -> int:
    """Run it as a program."""
    parser = argparse.ArgumentParser(
        prog="notify", description="Notifications through a bad provider, three kills, verdict."
    )
    parser.add_argument("--count", type=int, default=100, help="how many notifications (default 100)")
    given = parser.parse_args(words)
    if given.count < 20:
        parser.error("--count: 20 or more, or some faults do not occur")
    return run(given.count)


if __name__ == "__main__":
    sys.exit(main())
