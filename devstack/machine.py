"""What every way of running a server offers: a process of ours, or a container."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Protocol

Say = Callable[[str], None]


def silent(_line: str) -> None:
    """Drop a progress line."""


def shown(line: str) -> None:
    """Print a progress line at once, also into a pipe."""
    print(line, flush=True)


@dataclass(frozen=True)
class Record:
    """All that is needed to end a server later, from another process.

    Args:
        pid: process id, 0 for a container.
        created: the process's create time in seconds since the epoch.
        sign: signal number that asks it to end.
        folder: data folder to remove afterwards, empty for none.
        container: container id, empty for a process.
    """

    pid: int = 0
    created: float = 0.0
    sign: int = 0
    folder: str = ""
    container: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the fields as plain data."""
        return asdict(self)


class Machine(Protocol):
    """A server that can be started again on the same port with the same data."""

    def start(self) -> None:
        """Start it; returns at once, it may not answer yet."""

    def stop(self, sign: int, seconds: float = 20.0) -> None:
        """Ask it to end by a signal; SIGKILL after so many seconds. Nothing happens when it does not run."""

    def send(self, sign: int) -> None:
        """Send any signal."""

    def alive(self) -> bool:
        """Tell whether it runs."""

    def tail(self) -> str:
        """Return the last lines of its log."""

    def remove(self) -> None:
        """Remove what is left of it when it has ended: data, container."""

    def record(self) -> Record:
        """Return what ends it later."""
