"""One demo from its first process to its verdict."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar

from milepost import Settings
from rich.console import Console

from ..stage.processes import milepost
from . import report
from .facts import ENDED, booked, outcomes, runs, shop_effects
from .processes import COMPANIES, Fleet
from .tour import tour
from .traffic import Kill, Traffic
from .verdict import WAIT_TIMEOUT, Outcome, Verdict, compare

T = TypeVar("T")

#: Settings of the demo's processes: short leases, so that a killed process is missed within seconds.
SETTINGS = {
    "MILEPOST_APP": "milepost.examples.shop.service:service",
    "MILEPOST_LEASE": "3s",
    "MILEPOST_GRACE": "5s",
    "MILEPOST_NUDGE": "5s",
    "MILEPOST_STEP_CONCURRENCY": "8",
    "MILEPOST_CREATE_TOPICS": "true",
}
#: What the console needs besides the demo.
CONSOLE = ("authlib", "itsdangerous", "jinja2", "limits", "markdown_it")
#: All runs have to be final this long after the last order, in seconds.
DEADLINE = 120.0
#: Pause between two looks at the runs, in seconds; a look starts a process.
LOOK = 2.0


@dataclass(frozen=True)
class Result:
    """What a demo found.

    Attributes:
        shown: An order worth looking at, '' when there is none.
        timeline: What `milepost runs show` prints of it.
        trace: Its trace id, '' when it has none.
    """

    verdict: Verdict
    kills: Sequence[Kill]
    outcomes: Sequence[Outcome]
    set_up_seconds: float
    seconds: float
    shown: str
    timeline: str
    trace: str

    @property
    def faults(self) -> list[str]:
        """Everything that keeps the demo from being ok."""
        return report.faults(self.verdict, len(self.kills))

    @property
    def last_line(self) -> str:
        """The line that sums it up."""
        return report.last_line(self.verdict, len(self.kills))


class Rehearsal:
    """One demo on running servers.

    Args:
        console: Where progress goes.
        env: Where the servers are; its database is empty and for this demo alone.
        folder: Where logs and ledgers go.
        orders: How many orders are placed.
        keep: Leave all processes running afterwards.
    """

    def __init__(
        self, console: Console, env: Mapping[str, str], folder: Path, *, orders: int, keep: bool
    ) -> None:
        self._console = console
        self._orders = orders
        self._keep = keep
        self.env = {**env, **SETTINGS}
        self.fleet = Fleet(folder, self.env, keep=keep)
        #: Where the console is, and the link that signs in there, once; '' where there is none.
        self.console_url = self.console_link = ""

    async def run(self, tag: str) -> Result:
        """Start everything, place the orders, kill, wait, compare.

        The processes are stopped in any case, unless they are to be kept and everything went as planned.

        Args:
            tag: Begins every order's id.

        Raises:
            DemoFailed: There is nothing to compare; the text says why.
        """
        told = False
        try:
            begun = monotonic()
            await self._set_up()
            ready = monotonic()
            self._console.print(f"8 processes are ready after {ready - begun:.1f} s", highlight=False)
            traffic, found = await self.fleet.watched(self._drive(tag))
            ended = monotonic()
            result = await self._judge(traffic, found, ready - begun, ended - ready)
            if self._keep:
                await self._open_console(result, found)
            told = True
            return result
        finally:
            if not (self._keep and told):
                self.fleet.stop()

    async def _set_up(self) -> None:
        with self._console.status("starting 8 processes"):
            await milepost(self.fleet.env, "migrate")
            self.fleet.start()
            await self.fleet.watched(self.fleet.come_up())

    async def _drive(self, tag: str) -> tuple[Traffic, dict[str, dict[str, Any]]]:
        with report.progress_bar(self._console) as bars:
            placing = bars.add_task("orders placed", total=self._orders)
            ending = bars.add_task("orders at their end", total=self._orders)

            def on_kill(kill: Kill) -> None:
                bars.console.print(f"SIGKILL {kill.process} (pid {kill.pid}): {kill.work}", highlight=False)

            traffic = Traffic(self.fleet, self._orders, tag, lambda: bars.advance(placing), on_kill)
            await traffic.run()
            end = monotonic() + DEADLINE
            while True:
                found = await runs(self.fleet.env, self._orders + 100)
                ended = sum(run["state"] in ENDED for run in found.values())
                bars.update(
                    ending, completed=ended, description=f"at their end ({end - monotonic():.0f} s left)"
                )
                if ended >= self._orders or monotonic() > end:
                    return traffic, found
                await asyncio.sleep(LOOK)

    async def _judge(
        self, traffic: Traffic, found: Mapping[str, Mapping[str, Any]], set_up_seconds: float, seconds: float
    ) -> Result:
        ended = outcomes(traffic.accepted, found)
        effects = [effect for company in COMPANIES for effect in booked(self.fleet.ledger(company))]
        effects += await shop_effects(Settings.model_validate(_database(self.env)).sqlalchemy_url)
        shown = _worth_seeing(ended)
        timeline, trace = await self._look_at(shown) if shown else ("", "")
        return Result(
            verdict=compare(ended, effects),
            kills=tuple(traffic.kills),
            outcomes=ended,
            set_up_seconds=round(set_up_seconds, 1),
            seconds=round(seconds, 1),
            shown=shown,
            timeline=timeline,
            trace=trace,
        )

    async def _open_console(self, result: Result, found: Mapping[str, Mapping[str, Any]]) -> None:
        """Leave the console running, with a tour of what has happened."""
        if any(find_spec(name) is None for name in CONSOLE):
            return
        path = self.fleet.folder / "tour.md"
        relay, shop = self.fleet.pids["relay"], self.fleet.url("shop-api")
        about = (result.verdict, result.kills, result.outcomes, found)
        path.write_text(tour(*about, relay=relay, shop=shop))
        shown = sys.stdout.isatty() and (sys.platform == "darwin" or "DISPLAY" in os.environ)
        self.fleet.add_console("console", {"MILEPOST_CONSOLE_TOUR": str(path)}, show=shown)
        self.fleet.start("console")
        await self.fleet.watched(self.fleet.come_up("console"))
        said = self.fleet.said("console", "ready")
        self.console_url, self.console_link = str(said.get("url", "")), str(said.get("sign_in", ""))

    async def _look_at(self, order_id: str) -> tuple[str, str]:
        run = f"order/{order_id}"
        timeline = await milepost(self.fleet.env, "runs", "show", run)
        plain = json.loads(await milepost(self.fleet.env, "runs", "show", run, "--json"))
        return timeline.rstrip(), str(plain.get("trace") or "")


def _database(env: Mapping[str, str]) -> dict[str, str]:
    return {"database_url": env["MILEPOST_DATABASE_URL"]}


def _worth_seeing(ended: Sequence[Outcome]) -> str:
    """Choose an order to show: one that did not end well, else one that timed out, else one that was undone."""

    def worth(outcome: Outcome) -> tuple[bool, bool, bool]:
        undone = outcome.state == "COMPENSATED"
        return not undone and outcome.state != "SUCCEEDED", outcome.cause == WAIT_TIMEOUT, undone

    return max(ended, key=worth).order_id if ended else ""
