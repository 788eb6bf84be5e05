"""Real processes of a service for tests: `milepost serve` as a user starts it, killed as an operator kills it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
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
        queues: Comma-separated; all when empty.
    """

    env: Mapping[str, str]
    roles: str = ""
    lines: list[dict[str, object]] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    process: asyncio.subprocess.Process | None = None
    queues: str = ""

    async def start(self, *, ready: float = 40.0) -> Served:
        """Start it and wait until it says that it is ready; `ready=0` does not wait."""
        arguments = [sys.executable, "-m", "milepost.console.main", "--json", "serve"]
        arguments += ["--roles", self.roles] if self.roles else []
        arguments += ["--queues", self.queues] if self.queues else []
        path = os.pathsep.join(part for part in [os.environ.get("PYTHONPATH", ""), str(ROOT)] if part)
        self.process = await asyncio.create_subprocess_exec(
            *arguments,
            env={**os.environ, "PYTHONPATH": path, **self.env},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=ROOT,
            limit=2**22,
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
        return self.process is not None and self.process.returncode is not None

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._started.pid

    @property
    def _started(self) -> asyncio.subprocess.Process:
        assert self.process is not None, "it has not been started"
        return self.process

    def tail(self) -> str:
        """The end of its log."""
        return "\n".join(self.log[-30:])

    async def _stdout(self) -> None:
        assert self._started.stdout is not None
        async for line in self._started.stdout:
            with suppress(ValueError):
                self.lines.append(json.loads(line))

    async def _stderr(self) -> None:
        assert self._started.stderr is not None
        async for line in self._started.stderr:
            self.log.append(line.decode(errors="replace").rstrip())

    def send(self, number: signal.Signals) -> None:
        """Send a signal to it."""
        with suppress(ProcessLookupError):
            self._started.send_signal(number)

    async def wait(self, within: float = 30.0) -> int:
        """Wait until it has ended; returns its exit code (negative for a signal)."""
        async with asyncio.timeout(within):
            await asyncio.wait(self._readers)
            return await self._started.wait()

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
    except AssertionError as error:
        for process in processes:
            error.add_note(f"serve {process.roles}:\n{process.tail()}")
        raise
    finally:
        for process in processes:
            if process.process is not None and not process.ended:
                process.send(signal.SIGCONT)
                await process.kill()


@dataclass
class Supervised:
    """A process that is started again whenever a signal has ended it, as a platform does.

    Args:
        env: Variables beside the inherited ones.
        roles: Comma-separated; all when empty.
    """

    env: Mapping[str, str]
    roles: str = ""
    lives: list[Served] = field(default_factory=list)

    def __len__(self) -> int:
        """Lives so far, the present one included."""
        return len(self.lives)

    @property
    def now(self) -> Served:
        """The present life."""
        return self.lives[-1]

    async def watch(self) -> None:
        """Start it again and again.

        Raises:
            AssertionError: It ended by itself.
        """
        while True:
            self.lives.append(Served(self.env, self.roles))
            await self.now.start(ready=0)
            code = await self.now.wait(within=3600)
            assert code < 0, f"serve {self.roles} ended by itself with {code}: {self.now.tail()}"

    async def ready(self, within: float = 60.0) -> None:
        """Wait until the present life has said that it is ready."""
        await until(
            lambda: bool(self.lives) and self.now.ready, within=within, what=f"serve {self.roles} ready"
        )

    def tail(self) -> str:
        """The ends of the last lives' logs."""
        return "\n---\n".join(life.tail() for life in self.lives[-3:])


def _assertions(errors: BaseExceptionGroup[BaseException]) -> Iterator[AssertionError]:
    """Yield what has failed, however deep in groups."""
    for error in errors.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _assertions(error)
        elif isinstance(error, AssertionError):
            yield error


@asynccontextmanager
async def supervising(processes: Sequence[Supervised]) -> AsyncIterator[None]:
    """Keep processes running as long as the block lasts; none is left afterwards.

    Raises:
        AssertionError: One of them ended by itself; the test is cancelled at once.
    """
    failed: list[AssertionError] = []
    try:
        async with asyncio.TaskGroup() as group:
            watchers = [group.create_task(each.watch()) for each in processes]
            try:
                yield
            finally:
                for watcher in watchers:
                    watcher.cancel()
    except* AssertionError as errors:
        failed.extend(_assertions(errors))
    finally:
        for life in (life for each in processes for life in each.lives):
            if life.process is not None and not life.ended:
                life.send(signal.SIGCONT)
                await life.kill()
    if failed:
        for each in processes:
            failed[0].add_note(f"serve {each.roles}, life {len(each)}:\n{each.tail()}")
        raise failed[0]


@asynccontextmanager
async def supervised(env: Mapping[str, str], *roles: str) -> AsyncIterator[list[Supervised]]:
    """Run one supervised process per string of roles."""
    processes = [Supervised(env, role) for role in roles or ("",)]
    async with supervising(processes):
        yield processes
