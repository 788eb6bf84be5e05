"""`report run|runs|status|resume|demo`."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from milepost import MilepostError
from milepost.devstack.errors import DevstackError
from milepost.devstack.stack import up
from rich.console import Console
from rich.text import Text

from ..stage.processes import DemoFailed, milepost
from ..stage.servers import ending_on_sigterm
from . import demo, work
from .contracts import Config, DailyReport
from .status import standings, table


def main(words: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns:
        Exit status: 0 done, 1 not published, 2 wrong words, 4 could not be carried out, 130 stopped.
    """
    given = _parser().parse_args(words)
    console = Console(soft_wrap=True, highlight=False)
    try:
        with ending_on_sigterm():
            if given.command == "demo":
                return demo.run(console)
            folder = Config().folder.absolute()
            folder.mkdir(parents=True, exist_ok=True)
            return asyncio.run(_carry_out(console, folder, given))
    except (DemoFailed, DevstackError, MilepostError) as error:
        console.print(Text(f"report: {error}", style="bold red"))
        return 4
    except KeyboardInterrupt:
        console.print("stopped; `report resume` goes on after the last finished step")
        return 130


async def _carry_out(console: Console, folder: Path, given: argparse.Namespace) -> int:
    env = _environment(console, folder)
    if given.command == "runs":
        console.print(table(await standings(env)))
        return 0
    wanted = DailyReport(repo=given.repo, day=given.date)
    if given.command == "status":
        return await _status(console, env, wanted)
    act = work.run if given.command == "run" else work.resume
    return await act(console, env, folder, wanted)


async def _status(console: Console, env: dict[str, str], wanted: DailyReport) -> int:
    found = await standings(env, wanted.key)
    if not found:
        console.print(f"there is no report {wanted.key}")
        return 1
    console.print(table(found))
    console.print(Text((await milepost(env, "runs", "show", f"report/{wanted.key}")).rstrip()))
    return 0


def _environment(console: Console, folder: Path) -> dict[str, str]:
    """Say where the servers are: the ones that the environment names, else the ones of `milepost dev`.

    This process gets it too, since it starts runs by itself.
    """
    stack = up(say=lambda line: console.print(Text(line, style="dim")))
    artifacts = os.environ.get("MILEPOST_ARTIFACTS", f"file://{folder / 'artifacts'}")
    app = {"MILEPOST_APP": "milepost.examples.report.service:service", "REPORT_FOLDER": str(folder)}
    os.environ.update({**stack.env(), **app, "MILEPOST_ARTIFACTS": artifacts})
    return dict(os.environ)


def _absolute(folder: str) -> str:
    return str(Path(folder).resolve())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="report", description="A daily report of a git repository.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, help in (
        ("run", "make a report and publish it"),
        ("status", "where one report stands"),
        ("resume", "go on with a report after its last finished step"),
    ):
        command = commands.add_parser(name, help=help)
        command.add_argument(
            "--repo", required=True, type=_absolute, help="the repository's folder; nothing is written to it"
        )
        command.add_argument(
            "--date", required=True, type=date.fromisoformat, help="the day in UTC, 2026-11-29"
        )
    commands.add_parser("runs", help="every report, the youngest first")
    commands.add_parser("demo", help="with stand-ins for model and pages, a kill, and a verdict")
    return parser
