"""The demo's processes: started, killed, started again, watched, and stopped by their own ids."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx
from milepost.devstack.ports import free_port
from milepost.devstack.process import Process

#: Runs the command line without needing its script on the PATH.
MILEPOST = (sys.executable, "-c", "from milepost.console.main import main; main()")
#: Roles of each process of the service; a real one is deployed the same way.
ROLES: Mapping[str, str] = {
    "relay": "relay",
    "worker-1": "worker,compensator",
    "worker-2": "worker,compensator",
    "orchestrator": "orchestrator,signals,consumers,waker,upkeep",
}
COMPANIES = ("bank", "warehouse", "carrier")


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
    """All processes of the demo.

    Args:
        folder: Where logs and ledgers go.
        env: What every process gets: the servers' addresses and settings.
        keep: Leave the processes running when this one ends.
    """

    def __init__(self, folder: Path, env: Mapping[str, str], *, keep: bool) -> None:
        self.folder = folder
        self._keep = keep
        self._ports = {name: free_port() for name in (*COMPANIES, "shop-api")}
        addresses = {f"SHOP_{name.upper()}_URL": self.url(name) for name in COMPANIES}
        self.env = {**_absolute_path(), **env, **addresses}
        self._members = {member.name: member for member in self._all()}

    def url(self, name: str) -> str:
        """Return where a company or the shop's API answers."""
        return f"http://127.0.0.1:{self._ports[name]}"

    def ledger(self, company: str) -> Path:
        """Return the file of a company's ledger."""
        return self.folder / f"{company}.sqlite"

    @property
    def pids(self) -> dict[str, int]:
        """Process ids by name."""
        return {name: member.process.pid for name, member in self._members.items()}

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

    def _all(self) -> list[Member]:
        found = [self._company(name) for name in COMPANIES]
        found.append(self._http("shop-api", "milepost.examples.shop.service:api", "/health", {}))
        return [*found, *(self._role(name) for name in ROLES)]

    def _company(self, name: str) -> Member:
        env = {"COMPANY_LEDGER": str(self.ledger(name)), "CARRIER_KAFKA": self.env["MILEPOST_KAFKA"]}
        return self._http(name, f"milepost.examples.shop.{name}:api", "/calls", env)

    def _http(self, name: str, app: str, path: str, env: Mapping[str, str]) -> Member:
        words = (
            "-m",
            "uvicorn",
            app,
            "--host",
            "127.0.0.1",
            "--port",
            str(self._ports[name]),
            "--no-access-log",
        )
        return Member(
            name,
            self._process(name, (sys.executable, *words), env),
            lambda _log: _answers(f"{self.url(name)}{path}"),
        )

    def _role(self, name: str) -> Member:
        command = (*MILEPOST, "serve", "--json", "--roles", ROLES[name])
        return Member(name, self._process(name, command, {"SHOP_CALLER": name}), _says_ready)

    def _process(self, name: str, command: Sequence[str], env: Mapping[str, str]) -> Process:
        process = Process(command, folder=self.folder, env={**self.env, **env}, detached=self._keep)
        process.log = self.folder / f"{name}.log"
        return process


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
