"""An example's processes: started, killed, started again, watched, and stopped by their own ids."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx
from milepost.devstack.ports import free_port
from milepost.devstack.process import Process

T = TypeVar("T")

#: Runs the command line without needing its script on the PATH.
MILEPOST = (sys.executable, "-c", "from milepost.console.main import main; main()")
#: Settings of engines that may be killed: short leases, so that one is missed within seconds.
SHORT_LEASES = {
    "MILEPOST_LEASE": "2s",
    "MILEPOST_GRACE": "5s",
    "MILEPOST_NUDGE": "5s",
    "MILEPOST_STEP_CONCURRENCY": "8",
    "MILEPOST_CREATE_TOPICS": "true",
}
#: How long to wait for a moment that is worth a kill, and for a process to come up, in seconds.
PATIENCE = 40.0


class DemoFailed(Exception):
    """The demo cannot go on; the text says why, with the end of a log where there is one."""


@dataclass
class Member:
    """One process.

    Attributes:
        ready: Tells whether it can do its work; given what it has logged since its last start.
        read_from: Where in the log that start begins, in bytes.
    """

    name: str
    process: Process
    ready: Callable[[str], bool]
    read_from: int = 0
    running: bool = False

    def log_since_start(self) -> str:
        """Return what it has logged since it was last started."""
        with self.process.log.open("rb") as log:
            log.seek(self.read_from)
            return log.read().decode("utf-8", "replace")


class Fleet:
    """All processes of an example.

    Args:
        folder: Where logs and ledgers go.
        env: What every process gets: the servers' addresses and settings.
        keep: Leave the processes running when this one ends.
    """

    def __init__(self, folder: Path, env: Mapping[str, str], *, keep: bool = False) -> None:
        self.folder = folder
        self._keep = keep
        self.env = {**_absolute_path(), **env}
        self._members: dict[str, Member] = {}

    def __len__(self) -> int:
        return len(self._members)

    @property
    def pids(self) -> dict[str, int]:
        """Process ids by name."""
        return {name: member.process.pid for name, member in self._members.items()}

    def add_web(self, name: str, app: str, port: int, *, path: str, env: Mapping[str, str]) -> None:
        """Add a web application, which is ready when GET on the path is answered with 200."""
        words = ("-m", "uvicorn", app, "--host", "127.0.0.1", "--port", str(port), "--no-access-log")
        process = self._process(name, (sys.executable, *words), env)
        self._members[name] = Member(name, process, lambda _log: _answers(f"http://127.0.0.1:{port}{path}"))

    def add_serve(self, name: str, roles: str, env: Mapping[str, str]) -> None:
        """Add a `milepost serve` with these roles, all for none, which is ready when it says so."""
        command = (*MILEPOST, "serve", "--json", *(("--roles", roles) if roles else ()))
        self._members[name] = Member(name, self._process(name, command, env), _says_ready)

    def add_console(self, name: str, env: Mapping[str, str], *, show: bool = False) -> None:
        """Add the console on a free port of this machine, in a browser where that is to be shown."""
        command = (*MILEPOST, "--json", "console", "--port", "0", *(("--open",) if show else ()))
        self._members[name] = Member(name, self._process(name, command, env), _says_ready)

    def said(self, name: str, event: str) -> Mapping[str, Any]:
        """Return what a process has said of an event since it was started last; empty when nothing."""
        found = (
            json.loads(line)
            for line in self._members[name].log_since_start().splitlines()
            if _event(line) == event
        )
        return next(found, {})

    def start(self, *names: str) -> None:
        """Start processes, all when none is named; returns before they are ready."""
        for name in names or tuple(self._members):
            member = self._members[name]
            log = member.process.log
            member.read_from = log.stat().st_size if log.exists() else 0
            member.process.start()
            member.running = True

    def ready(self, *names: str) -> bool:
        """Tell whether processes can do their work, all when none is named."""
        members = [self._members[name] for name in names] or list(self._members.values())
        return all(member.ready(member.log_since_start()) for member in members)

    def kill(self, name: str) -> int:
        """End a process by SIGKILL; returns the id it had."""
        member = self._members[name]
        member.running = False
        pid = member.process.pid
        member.process.stop(signal.SIGKILL)
        return pid

    def check(self) -> None:
        """Look for processes that have ended by themselves.

        Raises:
            DemoFailed: With the end of the log of the first one found.
        """
        for member in self._members.values():
            if member.running and not member.process.alive():
                words = f"{member.name} has ended by itself. The end of {member.process.log}:"
                raise DemoFailed(f"{words}\n{member.process.tail()}")

    def tail(self, *names: str) -> str:
        """Return the ends of the logs of processes that are not ready."""
        silent = [name for name in names or tuple(self._members) if not self.ready(name)]
        return "\n".join(f"{name}:\n{self._members[name].process.tail()}" for name in silent)

    def stop(self) -> None:
        """Ask all to end and wait for it; SIGKILL after ten seconds."""
        with ThreadPoolExecutor(len(self._members)) as pool:
            for member in self._members.values():
                member.running = False
                pool.submit(member.process.stop, signal.SIGTERM, 10)

    async def come_up(self, *names: str) -> None:
        """Wait until processes can do their work, all when none is named.

        Raises:
            DemoFailed: They cannot, with the ends of their logs.
        """
        try:
            await until(lambda: asyncio.to_thread(self.ready, *names), "processes", every=0.1)
        except DemoFailed:
            tail = await asyncio.to_thread(self.tail, *names)
            raise DemoFailed(f"not ready after {PATIENCE:.0f} s:\n{tail}") from None

    async def watched(self, work: Coroutine[Any, Any, T]) -> T:
        """Do the work; give it up as soon as a process ends by itself.

        Raises:
            DemoFailed: One has.
        """
        task = asyncio.ensure_future(work)
        try:
            while not (await asyncio.wait({task}, timeout=0.3))[0]:
                self.check()
            return task.result()
        finally:
            if not task.done():
                task.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await task

    def _process(self, name: str, command: Sequence[str], env: Mapping[str, str]) -> Process:
        process = Process(command, folder=self.folder, env={**self.env, **env}, detached=self._keep)
        process.log = self.folder / f"{name}.log"
        return process


async def milepost(env: Mapping[str, str], *words: str) -> str:
    """Run one command of the command line and return what it prints.

    Raises:
        DemoFailed: It ended with an error, or took longer than a minute.
    """
    child = await asyncio.create_subprocess_exec(
        *MILEPOST, *words, env=dict(env), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        out, errors = await asyncio.wait_for(child.communicate(), 60)
    except TimeoutError:
        raise DemoFailed(f"milepost {' '.join(words)} took longer than a minute") from None
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode:
        raise DemoFailed(f"milepost {' '.join(words)} ended with {child.returncode}:\n{errors.decode()}")
    return out.decode()


async def together(*work: Coroutine[Any, Any, None]) -> None:
    """Do several things at once.

    Raises:
        DemoFailed: One of them could not be done; the others have been given up.
    """
    try:
        async with asyncio.TaskGroup() as tasks:
            for one in work:
                tasks.create_task(one)
    except* (DemoFailed, httpx.HTTPError) as group:
        raise DemoFailed("; ".join(str(error) or repr(error) for error in group.exceptions)) from group


async def until(
    check: Callable[[], Awaitable[T]], what: str, *, every: float = 0.01, patience: float | None = PATIENCE
) -> T:
    """Return the first true answer of the check.

    Args:
        what: What is waited for, for the error's text.
        every: Pause between two checks, in seconds.
        patience: How long it is waited for, in seconds; None for as long as it takes.

    Raises:
        DemoFailed: There was none in that time.
    """

    async def ask() -> T:
        while True:
            if found := await check():
                return found
            await asyncio.sleep(every)

    try:
        return await asyncio.wait_for(ask(), patience)
    except TimeoutError:
        raise DemoFailed(f"waited {patience:.0f} s for {what}") from None


def ports(names: Iterable[str]) -> dict[str, int]:
    """Return a free port for each name."""
    return {name: free_port() for name in names}


def _absolute_path() -> dict[str, str]:
    """The processes run in another folder, so a relative PYTHONPATH has to be spelled out."""
    given = os.environ.get("PYTHONPATH", "")
    folders = [str(Path(part).resolve()) for part in given.split(os.pathsep) if part]
    return {"PYTHONPATH": os.pathsep.join(folders)} if folders else {}


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=1).status_code == 200
    except httpx.HTTPError:
        return False


def _says_ready(log: str) -> bool:
    return any(_event(line) == "ready" for line in log.splitlines())


def _event(line: str) -> object:
    if not line.startswith("{"):
        return None
    try:
        found = json.loads(line)
    except json.JSONDecodeError:
        return None
    return found.get("event") if isinstance(found, dict) else None
