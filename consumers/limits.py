"""Rate limits in PostgreSQL: one row each, asked for by all processes, in one transaction for all who ask at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import asyncpg

from ..sagas.limiting import Limit, Window, ask
from ..schemas.states import Priority
from ..streams.queries import Queries


class Sql(Queries, file="limits.sql"):
    """Queries of this module and of gates.py."""

    add_limits: str
    lock_limits: str
    clock: str
    keep_limits: str
    close_limits: str
    waiting_step: str


@dataclass(frozen=True, slots=True)
class Wish:
    """Somebody who would like to begin.

    Attributes:
        limits: What it counts for.
        appointed: It was told to come now.
    """

    limits: Sequence[Limit]
    priority: Priority
    appointed: bool


class Limiter:
    """Asks for one process. While one question is under way, the next ones gather and are asked together.

    Args:
        pool: Where the limits are kept.
        service: Whose limits these are.
    """

    def __init__(self, pool: asyncpg.Pool[Any], service: str) -> None:
        self._pool = pool
        self._service = service
        self._asking: list[tuple[Wish, asyncio.Future[datetime | None]]] = []
        self._runner: asyncio.Task[None] | None = None

    async def ask(self, wish: Wish) -> datetime | None:
        """Return None when it may begin, which counts from now on; else when it should ask again.

        Who dies afterwards has used a call up that was never made: too few then, never too many.
        """
        answer = asyncio.get_running_loop().create_future()
        self._asking.append((wish, answer))
        if self._runner is None or self._runner.done():
            self._runner = asyncio.create_task(self._run(), name="milepost limits")
        found: datetime | None = await answer
        return found

    async def close(self, names: Sequence[str], until: timedelta) -> None:
        """Let nothing through for so long, because the other side asked for that."""
        await self._pool.execute(Sql.close_limits, self._service, sorted(set(names)), until)

    async def _run(self) -> None:
        while self._asking:
            together, self._asking = self._asking, []
            try:
                answers = await self._decide([wish for wish, _ in together])
            except BaseException as error:
                for _, future in together:
                    if not future.done():
                        future.set_exception(
                            error if isinstance(error, Exception) else asyncio.CancelledError()
                        )
                if not isinstance(error, Exception):
                    raise
                continue
            for (_, future), answer in zip(together, answers, strict=True):
                if not future.done():
                    future.set_result(answer)

    async def _decide(self, wishes: Sequence[Wish]) -> list[datetime | None]:
        names = sorted({limit.name for wish in wishes for limit in wish.limits})
        async with self._pool.acquire() as connection, connection.transaction(isolation="read_committed"):
            rows = await connection.fetch(Sql.lock_limits, self._service, names)
            if len(rows) < len(names):
                await connection.execute(Sql.add_limits, self._service, names)
                rows = await connection.fetch(Sql.lock_limits, self._service, names)
            now = await connection.fetchval(Sql.clock)
            windows = {row["name"]: _window(row) for row in rows}
            answers = []
            for wish in wishes:
                changed, at = ask(wish.limits, windows, now, priority=wish.priority, appointed=wish.appointed)
                windows.update(changed)
                answers.append(at)
            kept = [_stored(name, window) for name, window in windows.items()]
            await connection.execute(Sql.keep_limits, self._service, json.dumps(kept))
        return answers


def _window(row: asyncpg.Record) -> Window:
    return Window(
        spent={int(end): calls for end, calls in json.loads(row["spent"]).items()},
        promised={Priority(of): datetime.fromisoformat(at) for of, at in json.loads(row["promised"]).items()},
        closed_until=row["closed_until"],
    )


def _stored(name: str, window: Window) -> Mapping[str, Any]:
    return {
        "name": name,
        "spent": {str(end): calls for end, calls in window.spent.items()},
        "promised": {of.value: at.isoformat() for of, at in window.promised.items()},
    }
