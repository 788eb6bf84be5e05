"""What all servers share: start on free ports, come back on the same ones, leave nothing behind."""

from __future__ import annotations

import signal
from abc import ABC, abstractmethod
from types import TracebackType
from typing import ClassVar, Self

from .errors import DevstackError
from .machine import Machine, Record, Say, silent

ATTEMPTS = 3


class Server(ABC):
    """One server with its data; may be ended and started again on the same port with the same data.

    Args:
        detached: the server shall outlive this process; else it ends with it, whatever ends it.
        say: receives progress lines.
    """

    name: ClassVar[str]
    advice: ClassVar[str]
    closing: ClassVar[int] = signal.SIGTERM

    def __init__(self, *, detached: bool = False, say: Say = silent) -> None:
        self._detached = detached
        self._say = say
        self._machine: Machine | None = None

    def start(self) -> None:
        """Start the server and wait until it answers; nothing happens when it already does.

        Raises:
            DevstackError: it cannot be found, or does not answer in time; its log's last lines are in it.
        """
        if self._machine is not None:
            self._begin(self._machine)
            return
        for attempt in range(ATTEMPTS):
            machine = self._make()
            try:
                self._begin(machine)
            except BaseException as error:
                machine.stop(signal.SIGKILL)
                machine.remove()
                taken = isinstance(error, DevstackError) and "in use" in error.log
                if not taken or attempt == ATTEMPTS - 1:
                    raise
                continue
            self._machine = machine
            return

    def kill(self) -> None:
        """End the server by SIGKILL and wait for its end; ``start()`` brings it back."""
        if self._machine is not None:
            self._machine.stop(signal.SIGKILL)

    def alive(self) -> bool:
        """Tell whether the server's process runs, answering or not."""
        return self._machine is not None and self._machine.alive()

    def record(self) -> Record:
        """Return what ends this server from another process."""
        return self._machine.record() if self._machine else Record()

    def close(self) -> None:
        """End the server and remove its data (a folder that the caller named stays)."""
        machine, self._machine = self._machine, None
        if machine is not None:
            machine.stop(self.closing)
            machine.remove()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _begin(self, machine: Machine) -> None:
        machine.start()
        if not self._answers(machine):
            raise DevstackError(
                f"{self.name} was started and does not answer.",
                f"read its log below; to take another one, {self.advice}",
                machine.tail(),
            )

    @abstractmethod
    def _make(self) -> Machine:
        """Choose ports and prepare the data; not yet started."""

    @abstractmethod
    def _answers(self, machine: Machine) -> bool:
        """Wait until it is ready for clients; False when it ended or took too long."""
