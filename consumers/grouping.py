"""Changes of many runs together: whatever waits at the same moment is decided and stored in one transaction.

Nobody waits for others to come: a change that comes alone goes at once. While the database is busy with what came
before, what comes meanwhile gathers, and goes together when it is done.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from contextvars import Context
from typing import Any, cast
from uuid import UUID

import asyncpg

from ..outbox.model import OutboxRow
from .batching import pick
from .changes import Change, Changes, FactOf, InlineClaim
from .known import Known, Memory
from .store import Conflict
from .store_many import Sql
from .together import Asked, change_many

logger = logging.getLogger("milepost")

#: Most changes of a transaction.
MOST = 100
#: Transactions at once: while one is being written the next is decided.
RUNNERS = 2
#: Changes at once that have left a batch; each has a connection while it waits for what another transaction holds.
ALONE = 8
#: Seconds for which a connection is kept when nothing waits: a run's next change often comes in a few milliseconds, and
#: to take a connection and give it back costs a round trip each.
LINGER = 0.02


class Group:
    """Applies changes of runs on a pool, many in a transaction where many wait.

    Changes of one run go one after the other, in the order in which they were asked for. What a batch cannot hold is
    done alone: a run whose row is held or has moved, one whose waits begin or end, one that cannot be decided or
    stored. So none of them keeps the others from being stored.

    Args:
        changes: Decides and stores.
        pool: Where runs live.
    """

    def __init__(self, changes: Changes, pool: asyncpg.Pool[Any]) -> None:
        self._changes = changes
        self._pool = pool
        self._waiting: list[Asked] = []
        self._busy: set[UUID] = set()
        self._runners: set[asyncio.Task[None]] = set()
        self._lingering: list[asyncio.Future[None]] = []
        self._apart: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(ALONE)
        self._memory = Memory()

    def change(
        self,
        run_id: UUID,
        fact: FactOf,
        *,
        emitted: Sequence[OutboxRow] = (),
        inline: InlineClaim | None = None,
        known: Known | None = None,
    ) -> asyncio.Future[Change | None]:
        """Apply a fact to a run; arguments and what the future brings as `Changes.apply`.

        Args:
            known: The run as it was stored last, which then need not be read.
        """
        answer: asyncio.Future[Change | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(Asked(run_id, fact, emitted, inline, answer, known))
        self._wake()
        return answer

    def _wake(self) -> None:
        """Let somebody work on what waits; begun at the next turn of the loop, with all that came in this one."""
        if not self._waiting:
            return
        if self._lingering:
            woken = self._lingering.pop()
            if not woken.done():  # whoever was cancelled a moment ago tells those who wait
                woken.set_result(None)
        elif len(self._runners) < RUNNERS:
            # A context of its own: spans and the like of whoever happened to come first are none of the others'.
            runner = asyncio.create_task(self._run(), name="milepost changes", context=Context())
            self._runners.add(runner)
            runner.add_done_callback(self._ended)

    def _ended(self, runner: asyncio.Task[None]) -> None:
        """Tell who waits when the one who works has failed; begin what came while it gave its connection back."""
        self._runners.discard(runner)
        error = asyncio.CancelledError() if runner.cancelled() else runner.exception()
        if error is not None:
            waiting, self._waiting = self._waiting, []
            for asked in waiting:
                self._failed(asked, error)
        self._wake()

    async def _run(self) -> None:
        batch = self._next()
        while batch:
            batch = await self._on_a_connection(batch)

    def _next(self) -> Sequence[Asked]:
        """Take what can be done together now."""
        waiting = [asked for asked in self._waiting if not asked.answer.done()]
        batch, self._waiting = pick(waiting, self._busy, MOST)
        for asked in batch:
            self._busy.add(asked.run_id)
            if (known := self._memory.take(asked.run_id)) is not None and asked.known is None:
                asked.known, asked.remembered = known, True
        return batch

    async def _on_a_connection(self, batch: Sequence[Asked]) -> Sequence[Asked]:
        """Do a batch, and what comes after it, on one connection.

        Returns:
            The batch that was to be done when the connection was found closed.
        """
        try:
            async with self._pool.acquire() as proxy:
                connection = cast("asyncpg.Connection[Any]", proxy)
                if self._changes.own_session:
                    await connection.execute(Sql.many_by_session)
                while batch and not _is_closed(connection):
                    await self._together(connection, batch)
                    batch = self._next()
                    if not batch:
                        batch = await self._linger()
        except BaseException as error:
            for asked in batch:
                self._failed(asked, error)
            if not isinstance(error, Exception):
                raise
            return self._next()
        return batch

    async def _linger(self) -> Sequence[Asked]:
        """Wait for a moment for what comes next."""
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()
        self._lingering.append(woken)
        timer = loop.call_later(LINGER, self._lingered, woken)
        try:
            await woken
        finally:
            timer.cancel()
            if woken in self._lingering:
                self._lingering.remove(woken)
        return self._next()

    def _lingered(self, woken: asyncio.Future[None]) -> None:
        """Wait no longer, if nothing has come."""
        if woken in self._lingering:
            self._lingering.remove(woken)
            woken.set_result(None)

    async def _together(self, connection: asyncpg.Connection[Any], batch: Sequence[Asked]) -> None:
        """Store what can be stored together; the rest goes on by itself."""
        try:
            left = await self._store(connection, batch)
        except BaseException as error:
            for asked in batch:
                self._failed(asked, error)
            if not isinstance(error, Exception):
                raise
            return
        for asked in left:
            self._begin_alone(asked)

    async def _store(self, connection: asyncpg.Connection[Any], batch: Sequence[Asked]) -> Sequence[Asked]:
        """Change what can be changed in one transaction.

        Returns:
            What is left to be done alone.

        Raises:
            Exception: Nobody knows what became of the transaction, and each has to look for itself.
        """
        try:
            async with _transaction(connection, self._changes.own_session):
                done = await change_many(connection, self._changes, batch)
        except Exception as error:
            refused = isinstance(error, asyncpg.PostgresError | ValueError | TypeError)
            if _is_closed(connection) or not refused:
                raise
            # Something in it cannot be read or written, and nothing was: each by itself, so that it shows which.
            logger.warning("%d changes not made together: %s: %s", len(batch), type(error).__name__, error)
            return batch
        for asked, change in done.answers:
            if change is not None and change.known is not None and change.decision.claimed is None:
                self._memory.keep(change.known)
            self._answered(asked, change)
        return done.left

    def _begin_alone(self, asked: Asked) -> asyncio.Task[None]:
        task = asyncio.create_task(self._alone(asked))
        self._apart.add(task)
        task.add_done_callback(self._apart.discard)
        return task

    async def _alone(self, asked: Asked) -> None:
        try:
            async with self._room, self._pool.acquire() as proxy:
                change = await self._by_itself(cast("asyncpg.Connection[Any]", proxy), asked)
        except BaseException as error:
            self._failed(asked, error)
            if not isinstance(error, Exception):
                raise
        else:
            self._answered(asked, change)

    async def _by_itself(self, connection: asyncpg.Connection[Any], asked: Asked) -> Change | None:
        if asked.decided is not None:
            try:
                before, decision = asked.decided.before.run, asked.decided.decision
                await self._changes.store(connection, before, decision, asked.emitted)
                return asked.decided
            except Conflict:
                pass
        return await self._changes.apply(
            connection, asked.run_id, asked.fact, emitted=asked.emitted, inline=asked.inline
        )

    def _answered(self, asked: Asked, change: Change | None) -> None:
        if not asked.answer.done():
            asked.answer.set_result(change)
        self._over(asked)

    def _failed(self, asked: Asked, error: BaseException) -> None:
        if asked.answer.done():
            pass
        elif isinstance(error, Exception):
            asked.answer.set_exception(error)
        else:
            asked.answer.cancel()
        self._over(asked)

    def _over(self, asked: Asked) -> None:
        self._busy.discard(asked.run_id)
        self._wake()


@asynccontextmanager
async def _transaction(connection: asyncpg.Connection[Any], own_session: bool) -> AsyncGenerator[None]:
    """What is stored is one statement, a transaction by itself; behind a pooler the settings for it need another."""
    if own_session:
        yield
        return
    async with connection.transaction():
        await connection.execute(Sql.many_by_index)
        yield


def _is_closed(connection: asyncpg.Connection[Any]) -> bool:
    """Whether a connection is gone; the pool takes back one that was cut, and then it cannot be asked any more."""
    try:
        return connection.is_closed()
    except asyncpg.InterfaceError:
        return True
