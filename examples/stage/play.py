"""An example as a program: its folder, servers and database, and what its exit status says."""

from __future__ import annotations

import asyncio
import json
import secrets
import shutil
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from milepost.devstack.errors import DevstackError
from rich.console import Console
from rich.text import Text

from .processes import DemoFailed, Fleet, milepost
from .servers import ending_on_sigterm, own_database, stack


@dataclass(frozen=True)
class Place:
    """Where an example is played.

    Attributes:
        console: Where progress goes.
        folder: Where logs, ledgers and the result go.
        env: Where servers and database are.
        tag: Begins the names of what this run makes, so that two never share one.
    """

    console: Console
    folder: Path
    env: Mapping[str, str]
    tag: str

    def say(self, line: str, style: str = "") -> None:
        """Print a line as it is."""
        self.console.print(Text(line, style=style))

    async def begin(self, fleet: Fleet) -> None:
        """Make the schema and start all processes; returns when they are ready.

        Raises:
            DemoFailed: One is not.
        """
        begun = monotonic()
        await milepost(fleet.env, "migrate")
        fleet.start()
        await fleet.watched(fleet.come_up())
        self.say(f"{len(fleet)} processes are ready after {monotonic() - begun:.1f} s")

    def end(self, faults: Sequence[str], result: Mapping[str, Any], last_line: str) -> int:
        """Tell how it went: what is wrong, all of it as a file, and the line that sums it up.

        Returns:
            The exit status: 0 when nothing is wrong, else 1.
        """
        for line in faults:
            self.say(line, "bold red")
        content = {"ok": not faults, **result, "faults": list(faults)}
        (self.folder / "result.json").write_text(json.dumps(content, indent=2) + "\n")
        self.say(last_line)
        return 1 if faults else 0


def play(name: str, rehearse: Callable[[Place], Coroutine[Any, Any, int]]) -> int:
    """Play an example once, in build/NAME, on servers and in a database that are there for it alone.

    Args:
        name: What it is called.
        rehearse: Plays it and returns the exit status.

    Returns:
        The exit status; 4 when it could not be carried out, 130 when it was stopped.
    """
    console = Console(soft_wrap=True, highlight=False)
    folder = Path("build", name).resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    tag = f"{name[0]}{secrets.token_hex(2)}"
    try:
        with ending_on_sigterm(), stack(False, console) as servers:
            with own_database(servers.database_url, f"{name}_{tag}") as url:
                env = {**servers.env(), "MILEPOST_DATABASE_URL": url}
                return asyncio.run(rehearse(Place(console, folder, env, tag)))
    except (DemoFailed, DevstackError) as error:
        console.print(Text(f"{name} failed: {error}", style="bold red"))
        return 4
    except KeyboardInterrupt:
        console.print(f"{name} stopped; its processes have been stopped too")
        return 130
