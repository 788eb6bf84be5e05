"""One contract for every long-running part of a process: run until asked to stop, then finish or hand back in time."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol, runtime_checkable

import anyio

from ..schemas.errors import MilepostError
from ..schemas.ids import Clock

logger = logging.getLogger("milepost")


class Stop:
    """The request to stop, shared by all roles of a process.

    Args:
        clock: Source of monotonic time.
        grace: How long roles may take to finish once asked.
    """

    def __init__(self, clock: Clock, grace: timedelta) -> None:
        self._clock = clock
        self._grace = grace.total_seconds()
        self._asked = anyio.Event()
        self._deadline: float | None = None

    @property
    def asked(self) -> bool:
        """Whether a stop has been asked for."""
        return self._deadline is not None

    def ask(self, *, now: bool = False) -> None:
        """Ask all roles to stop; with `now` the grace time is over at once. Repeating is harmless."""
        if self._deadline is None:
            self._deadline = self._clock.monotonic() + self._grace
        if now:
            self._deadline = self._clock.monotonic()
        self._asked.set()

    def remaining(self) -> float:
        """Seconds of grace left, the whole of it before anybody asked."""
        if self._deadline is None:
            return self._grace
        return max(0.0, self._deadline - self._clock.monotonic())

    async def wait(self, seconds: float | None = None) -> bool:
        """Wait until a stop is asked for, at most `seconds`.

        Returns:
            True when a stop has been asked for.
        """
        with anyio.move_on_after(seconds):
            await self._asked.wait()
        return self.asked


@dataclass(frozen=True, slots=True)
class Health:
    """How a role is: `ok` is progress, not that an object exists.

    Attributes:
        detail: For people: position against end, age of the oldest row, epoch …
    """

    ok: bool
    detail: str


class Role(Protocol):
    """A long-running part of a process."""

    @property
    def name(self) -> str:
        """What `--roles` calls it."""
        ...

    async def run(self, stop: Stop) -> None:
        """Work until `stop` is asked for, then finish or hand back within `stop.remaining()` seconds.

        Infrastructure that is away is waited for inside; only a defect may raise.
        """
        ...

    def health(self) -> Health:
        """Return the present state, without waiting for anything."""
        ...


@runtime_checkable
class Progressing(Protocol):
    """A role whose lasting want of progress is a reason to start its process anew."""

    def stuck_for(self) -> float:
        """Return for how many seconds it has not been well, 0 while it is."""
        ...


async def run_roles(roles: Sequence[Role], stop: Stop) -> None:
    """Run roles side by side until they all have ended.

    A role that raises stops the others in order, then its error is raised.

    Args:
        roles: What to run.
        stop: Asked by the caller (a signal handler), or here when a role fails.

    Raises:
        ExceptionGroup: Errors of roles.
    """
    errors: list[Exception] = []

    async def guarded(role: Role) -> None:
        try:
            await role.run(stop)
        except MilepostError as error:
            logger.error("role %s: %s; stopping this process", role.name, error)
            errors.append(error)
        except Exception as error:
            logger.exception("role %s failed; stopping this process", role.name)
            errors.append(error)
        finally:
            if not stop.asked and errors:
                stop.ask()

    async with anyio.create_task_group() as group:
        for role in roles:
            group.start_soon(guarded, role, name=role.name)
    if errors:
        raise ExceptionGroup("roles failed", errors)
