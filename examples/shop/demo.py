"""The demo: a shop under fire, and the books of its partners compared with its orders.

Run it with `make demo`, `milepost demo` or `python -m milepost.examples.shop.demo`. The README beside this
file says what it shows.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import secrets
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from milepost.devstack.databases import drop_database, make_database
from milepost.devstack.errors import DevstackError
from milepost.devstack.stack import Stack
from rich.console import Console
from rich.text import Text

from ..stage import servers
from ..stage.processes import DemoFailed
from ..stage.servers import ending_on_sigterm
from . import report
from .rehearsal import Rehearsal, Result

#: Where the result goes, seen from the folder in which the demo is started.
BUILD = Path("build")


def run_demo(*, orders: int = 200, keep: bool = False, as_json: bool = False) -> int:
    """Run the demo: set up, orders, kills, comparison.

    Args:
        orders: How many orders are placed; from 20 on every fault occurs.
        keep: Leave servers and processes running, and print how to look at them.
        as_json: The last line is a JSON object instead of words; progress goes to stderr.

    Returns:
        0 when nothing was lost or duplicated, 1 when something was, 4 when the demo could not be carried out.
    """
    console = Console(stderr=as_json, soft_wrap=True)
    folder = (BUILD / "demo").resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        with ending_on_sigterm(), servers.stack(keep, console) as stack:
            return _on_servers(console, stack, folder, orders=orders, keep=keep, as_json=as_json)
    except (DemoFailed, DevstackError) as error:
        console.print(Text(f"demo failed: {error}", style="bold red"))
        return 4
    except KeyboardInterrupt:
        console.print("demo stopped; its processes have been stopped too")
        return 130


def _on_servers(
    console: Console, stack: Stack, folder: Path, *, orders: int, keep: bool, as_json: bool
) -> int:
    tag = secrets.token_hex(2)
    name = f"shop_demo_{tag}"
    url = make_database(stack.database_url, name)
    kept = False
    try:
        rehearsal = Rehearsal(
            console, {**stack.env(), "MILEPOST_DATABASE_URL": url}, folder, orders=orders, keep=keep
        )
        result = asyncio.run(rehearsal.run(tag))
        kept = keep
    finally:
        if not kept:
            drop_database(stack.database_url, name)
    console.print()
    report.show(console, result.verdict, result.kills)
    _show_one(console, stack, result)
    if keep:
        _say_what_is_left(console, rehearsal)
    else:
        console.print(
            "All of it has been stopped. `milepost demo --keep` leaves it running for you to look around."
        )
    _write(folder.with_suffix(".json"), result)
    print(json.dumps(_figures(result)) if as_json else result.last_line, flush=True)
    return 1 if result.faults else 0


def _show_one(console: Console, stack: Stack, result: Result) -> None:
    if not result.shown:
        return
    console.print(f"\n$ milepost runs show order/{result.shown}", style="bold", highlight=False)
    console.print(Text(result.timeline))
    if stack.jaeger and result.trace:
        console.print(f"its trace: {stack.jaeger}/api/traces/{result.trace}", highlight=False)
    console.print()


def _say_what_is_left(console: Console, rehearsal: Rehearsal) -> None:
    if rehearsal.console_link:
        link = f"{rehearsal.console_link}&next=/tour"
        console.print(
            "A guided tour of what has happened, in the console (the link works once):", highlight=False
        )
        console.print(Text(f"  {link}", style="bold"))
        console.print("Later: milepost console --open", highlight=False)
    else:
        console.print("With milepost[console] there is a guided tour of it in a browser.", highlight=False)
    console.print("Everything keeps running. To look around:", highlight=False)
    for name in ("MILEPOST_DATABASE_URL", "MILEPOST_KAFKA", "MILEPOST_APP"):
        console.print(f"  export {name}={rehearsal.env[name]}", highlight=False)
    console.print("  milepost runs list", highlight=False)
    pids = " ".join(str(pid) for pid in rehearsal.fleet.pids.values())
    # Servers that were given by the environment are somebody else's to end.
    down = "" if "MILEPOST_DATABASE_URL" in os.environ else " && milepost dev --down"
    console.print(f"To end it:\n  kill {pids}{down}", highlight=False)


def _figures(result: Result) -> dict[str, object]:
    verdict = result.verdict
    return {
        "ok": not result.faults,
        "orders": verdict.orders,
        "completed": verdict.completed,
        "compensated": verdict.compensated,
        "timed_out": verdict.timed_out,
        "kills": len(result.kills),
        "lost": verdict.count("lost"),
        "duplicated": verdict.count("duplicated"),
        "set_up_seconds": result.set_up_seconds,
        "seconds": result.seconds,
    }


def _write(path: Path, result: Result) -> None:
    """Write all figures, findings and outcomes as one JSON object."""
    content = {
        **_figures(result),
        "kills": [kill.as_json() for kill in result.kills],
        "effects": dict(result.verdict.effects),
        "faults": result.faults,
        "shown": f"order/{result.shown}" if result.shown else None,
        "trace": result.trace or None,
        "outcomes": {outcome.order_id: [outcome.state, outcome.cause] for outcome in result.outcomes},
    }
    path.write_text(json.dumps(content, indent=2) + "\n")


def main(words: Sequence[str] | None = None) -> int:
    """Run the demo as a program of its own."""
    parser = argparse.ArgumentParser(
        prog="demo", description="Orders through real processes, three kills, verdict."
    )
    parser.add_argument("--orders", type=int, default=200, help="how many orders are placed (default 200)")
    parser.add_argument("--keep", action="store_true", help="leave everything running")
    parser.add_argument("--json", action="store_true", help="the last line as JSON")
    given = parser.parse_args(words)
    if given.orders < 20:
        parser.error("--orders: 20 or more, or some faults do not occur")
    return run_demo(orders=given.orders, keep=given.keep, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
