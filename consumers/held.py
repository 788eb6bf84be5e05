"""Doing something under a claimed operation: its lease is renewed meanwhile; once it is lost, the work is cancelled."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from typing import Any, TypeVar

import anyio

from ..inbox.operation_model import Ending, Operation
from ..inbox.operations import Hold, Operations
from ..schemas.ids import Clock
from .engine import DATABASE_ERRORS, will_pass

logger = logging.getLogger("milepost")

T = TypeVar("T")

#: How long something that was cancelled may take to end, in seconds.
WIND_UP = 5.0
#: How long an ending is tried to be stored at least, in seconds, and the pause between two tries.
STORE_WITHIN = 10.0
STORE_PAUSE = 0.2


class LeaseGone(Exception):
    """The lease ended before the work did.

    Attributes:
        begun: Whether the work had begun: it was cancelled then, and may have taken effect.
    """

    def __init__(self, *, begun: bool) -> None:
        super().__init__(f"the lease ended {'while it ran' if begun else 'before it began'}")
        self.begun = begun


class Held:
    """A claimed operation.

    Args:
        operations: Where its record is.
        hold: The claim.
        clock: Elapsed time; the holder's own reckoning ends before the database's.
        asked_at: `clock.monotonic()` from before the claim was sent.
    """

    def __init__(self, operations: Operations, hold: Hold, clock: Clock, asked_at: float) -> None:
        self._operations = operations
        self._clock = clock
        self._lease = operations.lease.total_seconds()
        self._ends = asked_at + self._lease
        self.hold = hold

    @property
    def holds(self) -> bool:
        """Whether the lease still holds, by this process's own reckoning."""
        return self._clock.monotonic() < self._ends

    async def read(self) -> Operation | None:
        """Return the record, None when it is gone or the database does not answer."""
        try:
            found = await self._operations.read(self.hold.name)
        except DATABASE_ERRORS:
            return None
        return None if found is None else found[0]

    async def absent(self) -> bool:
        """Note that the effect is caused now, by a claim that was made to ask; False when the lease has ended."""
        before = self._clock.monotonic()
        done = await self._operations.absent(self.hold)
        if done:
            self._ends = before + self._lease
        return done

    async def run(self, act: Callable[[], Awaitable[T]]) -> T:
        """Do something while the lease is renewed.

        Raises:
            LeaseGone: The lease was lost, and the work did not end well in spite of that.
            BaseException: What the work raises; CancelledError when the caller is cancelled.
        """
        if not self.holds:
            raise LeaseGone(begun=False)
        work = asyncio.ensure_future(_coroutine(act))
        keeper = asyncio.create_task(self._keep())
        try:
            await asyncio.wait({work, keeper}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                await _wind_up(work)
                if not work.done() or work.cancelled() or work.exception() is not None:
                    raise LeaseGone(begun=True)
            return work.result()
        finally:
            keeper.cancel()
            await _wind_up(work)

    async def _keep(self) -> None:
        """Renew at a third, until the lease is lost."""
        pause = self._lease / 3
        while self.holds:
            await asyncio.sleep(pause)
            before = self._clock.monotonic()
            try:
                async with asyncio.timeout(max(self._ends - before, 0.01)):
                    renewed = await self._operations.renew(self.hold)
            except DATABASE_ERRORS as error:
                logger.warning("lease of operation %s not renewed: %s", self.hold.id, type(error).__name__)
                pause = min(self._lease / 3, 0.5)
                continue
            if not renewed:
                break
            self._ends, pause = before + self._lease, self._lease / 3
        self._ends = float("-inf")

    async def finish(self, ending: Ending) -> bool:
        """Store what it ended as, trying again while the database is away; also when the caller is being cancelled.

        Returns:
            False when somebody else has it by now.

        Raises:
            OSError, asyncpg errors: One of DATABASE_ERRORS, when it could not be stored in time.
            CancelledError: The caller is cancelled, once it is stored.
        """
        storing = asyncio.ensure_future(self._insist(ending))
        cancelled: asyncio.CancelledError | None = None
        with anyio.CancelScope(shield=True):
            while not storing.done():
                try:
                    await asyncio.wait({storing})
                except asyncio.CancelledError as error:  # of the task itself, which no scope shields from
                    cancelled = error
        failed = storing.exception()
        if cancelled is not None:
            raise cancelled
        if failed is not None:
            raise failed
        return storing.result()

    async def _insist(self, ending: Ending) -> bool:
        until = max(self._ends, self._clock.monotonic() + STORE_WITHIN)
        while True:
            try:
                async with asyncio.timeout(STORE_WITHIN):
                    return await self._operations.finish(self.hold, ending) or await self._stored(ending)
            except DATABASE_ERRORS as error:
                if not will_pass(error) or self._clock.monotonic() >= until:
                    raise
                logger.warning("operation %s not stored: %s; again", self.hold.id, type(error).__name__)
                await asyncio.sleep(STORE_PAUSE)

    async def _stored(self, ending: Ending) -> bool:
        """Whether an earlier try stored it, whose answer was lost."""
        found = await self._operations.read(self.hold.name)
        return found is not None and (found[0].fence, found[0].state) == (self.hold.fence, ending.state)


def _coroutine(act: Callable[[], Awaitable[T]]) -> Coroutine[Any, Any, T]:
    async def acting() -> T:
        return await act()

    return acting()


async def _wind_up(work: asyncio.Future[Any]) -> None:
    """Cancel something and wait until it has ended, even when the caller is being cancelled."""
    if work.done():
        return
    work.cancel()
    with anyio.CancelScope(shield=True):
        await asyncio.wait({work}, timeout=WIND_UP)
    if work.done() and not work.cancelled():
        work.exception()  # retrieved: whoever needs it asks again


def seconds(length: timedelta) -> int:
    """Return whole seconds for a Retry-After, at least one."""
    return max(1, -int(-length.total_seconds() // 1))
