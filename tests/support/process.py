"""Real processes of a service for tests: `milepost serve` as a user starts it, killed as an operator kills it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Served:
    """One `milepost serve` process.

    Args:
        env: Variables beside the inherited ones.
        roles: Comma-separated; all when empty.
    """

    env: Mapping[str, str]
    roles: str = ""
    lines: list[dict[str, object]] = field(default_factory=list)
    log: list[str] = field(default_factory=list)

    async def start(self, *, ready: float = 40.0) -> Served:
        """Start it and wait until it says that it is ready; `ready=0` does not wait."""
        arguments = [sys.executable, "-m", "milepost.console.main", "--json", "serve"]
        arguments += ["--roles", self.roles] if self.roles else []
        path = os.pathsep.join(part for part in [os.environ.get("PYTHONPATH", ""), str(ROOT)] if part)
        self.process = await asyncio.create_subprocess_exec(
            *arguments,
            env={**os.environ, "PYTHONPATH": path, **self.env},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=ROOT,
        )
        self._readers = [asyncio.create_task(self._stdout()), asyncio.create_task(self._stderr())]
        if ready:
            await until(lambda: self.ready or self.ended, within=ready, what=f"serve {self.roles} ready")
            assert self.ready, f"serve {self.roles} ended: {self.tail()}"
        return self

    @property
    def ready(self) -> bool:
        """Whether it has said so."""
        return any(line.get("event") == "ready" for line in self.lines)

    @property
    def ended(self) -> bool:
        """Whether the process is gone."""
        return self.process.returncode is not None

    def tail(self) -> str:
        """The end of its log."""
        return "\n".join(self.log[-30:])

    async def _stdout(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            with suppress(ValueError):
                self.lines.append(json.loads(line))

    async def _stderr(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self.log.append(line.decode(errors="replace").rstrip())

    def send(self, number: signal.Signals) -> None:
        """Send a signal to it."""
        with suppress(ProcessLookupError):
            self.process.send_signal(number)

    async def wait(self, within: float = 30.0) -> int:
        """Wait until it has ended; returns its exit code (negative for a signal)."""
        async with asyncio.timeout(within):
            await asyncio.gather(*self._readers)
            return await self.process.wait()

    async def kill(self) -> None:
        """SIGKILL it and wait until it is gone."""
        self.send(signal.SIGKILL)
        await self.wait()

    async def stop(self, within: float = 30.0) -> int:
        """SIGTERM it and wait until it has ended."""
        self.send(signal.SIGTERM)
        return await self.wait(within)


@asynccontextmanager
async def served(env: Mapping[str, str], *roles: str, ready: float = 40.0) -> AsyncIterator[list[Served]]:
    """Run one process per string of roles; none is left afterwards."""
    processes = [Served(env, role) for role in roles or ("",)]
    try:
        await asyncio.gather(*(process.start(ready=ready) for process in processes))
        yield processes
    finally:
        for process in processes:
            if not process.ended:
                process.send(signal.SIGCONT)
                await process.kill()


@asynccontextmanager
async def supervised(env: Mapping[str, str], roles: str = "") -> AsyncIterator[list[Served]]:
    """Run a process that is started again whenever it has died, as a platform does; yields all lives so far."""
    lives: list[Served] = [await Served(env, roles).start()]

    async def watch() -> None:
        while True:
            await lives[-1].wait(within=3600)
            lives.append(await Served(env, roles).start(ready=0))

    watcher = asyncio.create_task(watch())
    try:
        yield lives
    finally:
        watcher.cancel()
        with suppress(asyncio.CancelledError):
            await watcher
        if not lives[-1].ended:
            await lives[-1].kill()
