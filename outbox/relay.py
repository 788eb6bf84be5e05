"""The relay role: stand by for the lease, lead while it is ours, give it back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta
from typing import Any, cast

import asyncpg

from ..schemas.errors import ConnectError, StateError
from ..schemas.ids import Clock, Ids, Randomness, SystemClock, SystemIds, SystemRandomness
from ..streams.database import Database
from ..streams.lifecycle import Health, Stop
from .feeder import Seen
from .leader import Leader, Limits
from .lease import DATABASE_ERRORS, Lease, LeaseLost, Terms, take_lease
from .log import OutboxState
from .patience import Backoff, Trouble

#: How often a standby looks at the lease, in seconds: its share of the time that a takeover takes.
_STANDBY_POLL = 0.25
#: How often a relay looks whether a restored copy has been mended, in seconds.
_REFUSED = 2.0
#: Longest lease of a relay. While one that was killed still has it, nothing leaves the outbox at all; one that loses it
#: because the database was away could not have sent anyway, and a takeover repeats records, no more.
LONGEST_LEASE = timedelta(seconds=15)
#: A relay that has been in trouble for longer, or that lags for longer, is not healthy; in seconds.
_PATIENCE, _OLD = 10.0, 60.0


class Relay:
    """Sends the rows of the outbox to Kafka; one at a time leads, any number stands by.

    Order: rows of one key arrive in the order in which transactions that held the key's lock committed. A row may
    be sent again after a kill, always with the same id and bytes.

    Args:
        database: Where the outbox is; opened here if it is not yet.
        clock: For the lease's countdown.
        ids: Makes this relay's name.
        randomness: Jitter of waits.
        outbox: Name in the lease and position tables.
        delivery_timeout: Longest wait for Kafka's acknowledgement of a page, after which the producer is replaced.
        topics: Topics that the application declares; those of rows are met by themselves.
        seen: Told rows as soon as they are seen committed, before they are sent; once more if they are sent again.
    """

    def __init__(
        self,
        database: Database,
        *,
        clock: Clock | None = None,
        ids: Ids | None = None,
        randomness: Randomness | None = None,
        outbox: str = "outbox",
        delivery_timeout: timedelta = timedelta(seconds=10),
        topics: Iterable[str] = (),
        seen: Seen | None = None,
    ) -> None:
        self._database = database
        self._clock = clock or SystemClock()
        self._randomness = randomness or SystemRandomness()
        self._terms = Terms(outbox, (ids or SystemIds()).new(), min(database.settings.lease, LONGEST_LEASE))
        self._limits = Limits(delivery=delivery_timeout)
        self._backoff = Backoff(self._randomness)
        self._trouble = Trouble(self._clock)
        self._kafka_trouble = Trouble(self._clock)
        self._topics = frozenset(topics)
        self._seen = seen
        self._epoch: int | None = None
        self._state: OutboxState | None = None
        self._copy = Trouble(self._clock)

    @property
    def name(self) -> str:
        """What `--roles` calls it."""
        return "relay"

    async def run(self, stop: Stop) -> None:
        """Stand by and lead until asked to stop; a clean stop gives the lease back.

        Whatever is away is waited for. A copy of another database is refused: nothing is sent, and health says so.
        """
        while not stop.asked:
            try:
                await self._database.open()
                if not await self._turn(stop):
                    await stop.wait(_STANDBY_POLL)
                self._copy.over()
            except LeaseLost:
                self._trouble.meet("relay: the lease was lost; standing by")
            except StateError as error:
                self._copy.meet(str(error))
                await stop.wait(_REFUSED)
            except (*DATABASE_ERRORS, ConnectError) as error:
                self._trouble.meet(
                    f"relay: the database: {str(error) or type(error).__name__}. Trying again."
                )
                await stop.wait(self._backoff.next())
            finally:
                self._epoch = None

    def health(self) -> Health:
        """Return the present state: leader or standby, lag, age of the oldest unsent row, and what is in the way."""
        if self._copy.text:
            return Health(False, self._copy.text)
        state = self._state
        role = "standby" if self._epoch is None else f"leader epoch {self._epoch}"
        if state is not None and self._epoch is not None:
            age = "" if state.oldest_seconds is None else f", oldest {state.oldest_seconds:.1f} s"
            role = f"{role}, lag {state.lag}{age}"
        old = state is not None and self._epoch is not None and (state.oldest_seconds or 0.0) > _OLD
        troubles = (self._trouble, self._kafka_trouble)
        stuck = any(trouble.lasting() > _PATIENCE for trouble in troubles)
        return Health(
            not (stuck or old), "; ".join([role, *(trouble.text for trouble in troubles if trouble.text)])
        )

    async def _turn(self, stop: Stop) -> bool:
        """Lead if the lease is free; return whether it was."""
        lease = await take_lease(self._database.pool, self._terms, clock=self._clock)
        self._backoff.reset()
        self._trouble.over()
        if lease is None:
            self._kafka_trouble.over()
            return False
        self._epoch = lease.epoch
        keeping = asyncio.create_task(lease.keep())
        try:
            await self._lead(lease, stop)
        finally:
            keeping.cancel()
            with suppress(asyncio.CancelledError):
                await keeping
            await lease.release()
        return True

    async def _lead(self, lease: Lease, stop: Stop) -> None:
        pool = self._database.pool
        async with pool.acquire(timeout=5.0) as reading, pool.acquire(timeout=5.0) as writing:
            leader = Leader(
                self._database.settings,
                lease,
                self._terms.outbox,
                cast("asyncpg.Connection[Any]", reading),
                cast("asyncpg.Connection[Any]", writing),
                stop=stop,
                clock=self._clock,
                randomness=self._randomness,
                trouble=self._kafka_trouble,
                limits=self._limits,
                measured=self._measured,
                topics=self._topics,
                seen=self._seen,
            )
            try:
                await leader.lead()
            except BaseException:
                # Whatever they were in the middle of, the pool makes new ones; one that broke it has taken back.
                for connection in (reading, writing):
                    with suppress(asyncpg.InterfaceError):
                        connection.terminate()
                raise

    def _measured(self, state: OutboxState) -> None:
        self._state = state
        self._copy.over()
