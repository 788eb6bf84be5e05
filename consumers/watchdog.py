"""Ends a process that makes no progress, so that its platform starts another one."""

from __future__ import annotations

import asyncio
import faulthandler
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

from ..schemas.errors import MilepostError, StateError
from ..streams.lifecycle import Health, Progressing, Role, Stop

#: Seconds between two looks.
_LOOK = 1.0
#: How long a process may take to end after it has been told to, beside its grace time, in seconds.
_END = 20.0


class Watchdog:
    """Watches the readers of a process, and its event loop.

    A reader that has been red for longer than `after` ends the process, but only when both servers answer a new
    connection: then this process is the trouble, and a new one will do better. While a server is away a new one would
    not, so this one stays, red, and goes on by itself later.

    Args:
        parts: All parts of the process.
        after: How long a reader may be without progress, and how long the event loop may stand still.
        grace: How long the other parts may take to end.
        servers_answer: Connects anew to both servers; raises an error of ours when one does not answer.
    """

    name = "watchdog"

    def __init__(
        self,
        parts: Sequence[Role],
        *,
        after: timedelta,
        grace: timedelta,
        servers_answer: Callable[[], Awaitable[None]],
    ) -> None:
        self._parts = parts
        self._after = after.total_seconds()
        self._grace = grace.total_seconds()
        self._servers_answer = servers_answer
        self.pulse = Pulse(self._after)

    async def run(self, stop: Stop) -> None:
        """Watch until asked to stop.

        Raises:
            StateError: MP430 when this process has to be started anew.
        """
        pulse = self.pulse
        pulse.start()
        try:
            while not await stop.wait(_LOOK):
                pulse.beat()
                await self._look_beating()
        except StateError:
            pulse.end_within(self._grace + _END)
            raise
        except BaseException:
            pulse.stop()
            raise
        else:
            pulse.stop()

    def health(self) -> Health:
        """Always well: what it sees is the others' health."""
        return Health(True, "watching")

    async def _look_beating(self) -> None:
        """Look, and let a server that takes its time to answer not pass for an event loop that stands still."""
        looking = asyncio.create_task(self._look(), name="milepost look")
        try:
            while not looking.done():
                await asyncio.wait({looking}, timeout=_LOOK)
                self.pulse.beat()
            looking.result()
        finally:
            looking.cancel()

    async def _look(self) -> None:
        stuck = [
            part for part in self._parts if isinstance(part, Progressing) and part.stuck_for() > self._after
        ]
        if not stuck:
            return
        try:
            await self._servers_answer()
        except MilepostError:
            return
        found = [(part, part.stuck_for()) for part in stuck if isinstance(part, Progressing)]
        words = "; ".join(
            f"{part.name} for {seconds:.0f} s ({part.health().detail})"
            for part, seconds in found
            if seconds > self._after
        )
        if words:
            raise StateError(
                "MP430",
                f"no progress: {words}, while PostgreSQL and Kafka answer a new connection. This process ends so that "
                "its platform starts another; MILEPOST_STUCK_AFTER sets how long that may last.",
            )


class Pulse:
    """A thread that ends the process when its event loop stands still, which no code in the loop could do.

    It counts its own looks, so that a machine that was suspended does not count as standing still.

    Args:
        after: Seconds without a beat.
    """

    def __init__(self, after: float) -> None:
        self._after = after
        self._beats = 0
        self._over = threading.Event()

    def start(self) -> None:
        """Begin to watch."""
        threading.Thread(target=self._watch, name="milepost-pulse", daemon=True).start()

    def beat(self) -> None:
        """Say that the loop turns."""
        self._beats += 1

    def end_within(self, seconds: float) -> None:
        """Give the process so long to end by itself."""
        self._after = seconds

    def stop(self) -> None:
        """Watch no more."""
        self._over.set()

    def _watch(self) -> None:
        seen, still = -1, 0.0
        while not self._over.wait(_LOOK):
            still = still + _LOOK if self._beats == seen else 0.0
            seen = self._beats
            if still > self._after:
                sys.stderr.write(
                    f"MP431 the event loop of this process has stood still for {still:.0f} s. It ends so that its "
                    "platform starts another. What it was doing:\n"
                )
                faulthandler.dump_traceback(file=sys.stderr, all_threads=True)
                sys.stderr.flush()
                os._exit(3)
