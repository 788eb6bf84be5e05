"""Kills of an example's processes, each at a moment when there is work to lose."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import httpx

from .processes import Fleet, until

#: A process that has work, and what it is doing; None while none has.
Busy: TypeAlias = tuple[str, str] | None


@dataclass(frozen=True)
class Kill:
    """A kill that was carried out: of which process, its id, and what it was doing."""

    process: str
    pid: int
    work: str


@dataclass
class Kills:
    """Kills processes and starts them again.

    Args:
        say: Called with a line after every kill.

    Attributes:
        done: The kills that were carried out.
    """

    fleet: Fleet
    say: Callable[[str], None]
    done: list[Kill] = field(default_factory=list)

    async def kill(self, at_work: Callable[[], Awaitable[Busy]], *, away: float = 1.0) -> None:
        """Kill a process at a moment when it has work, start it again, and wait until it is ready.

        Args:
            at_work: Names the process.
            away: How long it is not there, in seconds.

        Raises:
            DemoFailed: There was no such moment, or it did not come up again.
        """
        found = await until(at_work, "a moment at which a process has work")
        assert found is not None
        name, work = found
        kill = Kill(name, self.fleet.kill(name), work)
        self.done.append(kill)
        self.say(f"SIGKILL {name} (pid {kill.pid}): {work}")
        await asyncio.sleep(away)
        self.fleet.start(name)
        await self.fleet.come_up(name)


async def calling(
    http: httpx.AsyncClient, company: str, url: str, names: Sequence[str], *, least: int = 1
) -> Busy:
    """Name a process whose calls a company is answering right now.

    Args:
        company: What it is called.
        url: Where it answers.
        names: The processes that may be named.
        least: So many calls have to be open.
    """
    calls = (await http.get(f"{url}/calls")).json()
    for name in names:
        if (count := calls.get(name, 0)) >= least:
            return name, f"the {company} was answering {count} of its calls"
    return None
