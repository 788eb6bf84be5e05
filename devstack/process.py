"""A server as a process of ours."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from . import guard
from .errors import DevstackError, last_lines
from .machine import Record

DATA_VARIABLE = "MILEPOST_DEVSTACK_DATA"

# Python warns when the object of a running child is dropped, but detached servers are meant to outlive us:
# they are kept until the exit and then marked as ended.
_DETACHED: list[subprocess.Popen[bytes]] = []


@atexit.register
def _let_go() -> None:
    for child in _DETACHED:
        child.returncode = child.returncode or 0


def data_folder(part: str, named: Path | None = None) -> tuple[Path, bool]:
    """Make the folder for a server's data and log.

    Args:
        part: the server's name, for people who look into the folder.
        named: a folder the caller wants; else a new one under MILEPOST_DEVSTACK_DATA or the temporary folder.

    Returns:
        The folder, and whether it is ours to remove.
    """
    if named is not None:
        named.mkdir(parents=True, exist_ok=True)
        return named.resolve(), False
    parent = os.environ.get(DATA_VARIABLE)
    if parent:
        Path(parent).mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix=f"milepost-{part}-", dir=parent or None)).resolve(), True


class Process:
    """A child process with its log file.

    Args:
        command: program and arguments.
        folder: where its log goes (``server.log``).
        env: variables added to ours.
        owner: user id to run as, None for ours.
        sign: the signal that asks this kind of server to end.
        detached: it shall outlive us; else it ends with us, whatever ends us.
        remove: the folder is ours and goes away with the server.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        folder: Path,
        env: Mapping[str, str] | None = None,
        owner: tuple[int, int] | None = None,
        sign: int = signal.SIGTERM,
        detached: bool = False,
        remove: bool = False,
    ) -> None:
        self.command = list(command)
        self.folder = folder
        self.log = folder / "server.log"
        self._env = {**os.environ, **(env or {})}
        self._owner = owner
        self._sign = sign
        self._detached = detached
        self._remove = remove
        self._child: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._created = 0.0

    @property
    def pid(self) -> int:
        """The process id, 0 when it was never started."""
        return self._child.pid if self._child else 0

    def start(self) -> None:
        """Start it in a session of its own, so that Ctrl-C reaches us and not the server.

        Raises:
            DevstackError: the program cannot be run.
        """
        if self.alive():
            return
        user, group = self._owner or (None, None)
        with self.log.open("ab") as log:
            try:
                self._child = subprocess.Popen(
                    self.command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=self.folder,
                    env=self._env,
                    user=user,
                    group=group,
                    extra_groups=[] if self._owner else None,
                    start_new_session=True,
                )
            except OSError as error:
                raise DevstackError(
                    f"{self.command[0]} cannot be run: {error}.", "Check that the file exists and may be run."
                ) from error
        self._watch(self._child)

    def _watch(self, child: subprocess.Popen[bytes]) -> None:
        """Note the create time; leave a guard beside a server that must not outlive us."""
        try:
            self._created = psutil.Process(child.pid).create_time()
        except psutil.NoSuchProcess:
            return
        if self._detached:
            _DETACHED.append(child)
            return
        folder = str(self.folder) if self._remove else ""
        script = [guard.__file__, str(child.pid), repr(self._created), str(int(self._sign)), folder]
        self._guard = subprocess.Popen(
            [sys.executable, *script],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def alive(self) -> bool:
        """Tell whether the process runs."""
        return self._child is not None and self._child.poll() is None

    def send(self, sign: int) -> None:
        """Send a signal; nothing happens when the process has ended."""
        if self._child is not None:
            self._child.send_signal(sign)

    def stop(self, sign: int, seconds: float = 20.0) -> None:
        """Ask it to end, then insist.

        Args:
            sign: the signal that asks.
            seconds: how long it may take before SIGKILL.
        """
        child = self._child
        if child is not None and child.poll() is None:
            child.send_signal(sign)
            child.send_signal(signal.SIGCONT)
            try:
                child.wait(seconds)
            except subprocess.TimeoutExpired:
                child.kill()
        if child is not None:
            child.wait()
        self._dismiss_guard()

    def _dismiss_guard(self) -> None:
        watcher, self._guard = self._guard, None
        if watcher is None or watcher.stdin is None:
            return
        with contextlib.suppress(OSError):
            watcher.stdin.write(b"done\n")
            watcher.stdin.close()
        watcher.wait()

    def tail(self) -> str:
        """Return the last lines of its log."""
        return last_lines(self.log)

    def remove(self) -> None:
        """Remove the folder when it is ours."""
        if self._remove:
            shutil.rmtree(self.folder, ignore_errors=True)

    def record(self) -> Record:
        """Return what ends it later, from another process."""
        folder = str(self.folder) if self._remove else ""
        return Record(pid=self.pid, created=self._created, sign=int(self._sign), folder=folder)
