"""Changes of many runs together: whatever waits at the same moment is decided and stored in one transaction.

Nobody waits for others to come: a change that comes alone goes at once, by itself. While the database is busy with what
came before, what comes meanwhile gathers, and goes together when it is done.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextvars import Context
from typing import Any, cast
from uuid import UUID

import asyncpg

from ..outbox.model import OutboxRow
from .batching import pick
from .changes import Change, Changes, FactOf, InlineClaim
from .store import Conflict
from .together import Asked, change_many

logger = logging.getLogger("milepost")

#: Most changes of a transaction.
MOST = 100
#: Transactions at once: while one is being written the next is decided.
RUNNERS = 2
#: Changes at once that have left a batch; each has a connection while it waits for what another transaction holds.
ALONE = 8
#: Seconds after which a change that came alone and waits for a row no longer keeps the next ones waiting.
PATIENCE = 0.05


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
        self._apart: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(ALONE)

    async def change(
        self,
        run_id: UUID,
        fact: FactOf,
        *,
        emitted: Sequence[OutboxRow] = (),
        inline: InlineClaim | None = None,
    ) -> Change | None:
        """Apply a fact to a run; arguments and result as `Changes.apply`."""
        answer: asyncio.Future[Change | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(Asked(run_id, fact, emitted, inline, answer))
        self._wake()
        return await answer

    def _wake(self) -> None:
        """Let somebody work on what waits; begun at the next turn of the loop, with all that came in this one."""
        if self._waiting and len(self._runners) < RUNNERS:
            # A context of its own: spans and the like of whoever happened to come first are none of the others'.
            runner = asyncio.create_task(self._run(), name="milepost changes", context=Context())
            self._runners.add(runner)
            runner.add_done_callback(self._ended)

    def _ended(self, runner: asyncio.Task[None]) -> None:
        """Tell who waits when the one who works has failed, which only a mistake in here could cause."""
        self._runners.discard(runner)
        error = asyncio.CancelledError() if runner.cancelled() else runner.exception()
        if error is not None:
            waiting, self._waiting = self._waiting, []
            for asked in waiting:
                self._failed(asked, error)

    async def _run(self) -> None:
        while True:
            waiting = [asked for asked in self._waiting if not asked.answer.done()]
            batch, self._waiting = pick(waiting, self._busy, MOST)
            if not batch:
                return
            self._busy.update(asked.run_id for asked in batch)
            if len(batch) == 1:
                await asyncio.wait({self._begin_alone(batch[0])}, timeout=PATIENCE)
            else:
                await self._together(batch)

    async def _together(self, batch: Sequence[Asked]) -> None:
        """Store what can be stored together; the rest goes on by itself."""
        try:
            left = await self._in_transaction(batch)
        except BaseException as error:
            for asked in batch:
                self._failed(asked, error)
            if not isinstance(error, Exception):
                raise
            return
        for asked in left:
            self._begin_alone(asked)

    async def _in_transaction(self, batch: Sequence[Asked]) -> Sequence[Asked]:
        """Change what can be changed in one transaction.

        Returns:
            What is left to be done alone.

        Raises:
            Exception: The connection is gone, and with it what became of the transaction.
        """
        async with self._pool.acquire() as proxy:
            connection = cast("asyncpg.Connection[Any]", proxy)
            try:
                async with connection.transaction():
                    done = await change_many(connection, self._changes, batch)
            except Exception as error:
                if connection.is_closed():
                    raise
                # Something in it cannot be read or written, and nothing was: each by itself, so that it shows which.
                logger.warning(
                    "%d changes not made together: %s: %s", len(batch), type(error).__name__, error
                )
                return batch
        for asked, change in done.answers:
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
