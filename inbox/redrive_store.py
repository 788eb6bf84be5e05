"""The SQL of carrying redrives out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg

from ..schemas.envelope import Record
from ..schemas.ids import Ids
from ..schemas.packing import unpack_headers
from ..schemas.states import LetterStatus
from ..streams.queries import Queries
from . import asking
from .letter import for_people, scope_of
from .model import Reason


class _Sql(Queries, file="redrive.sql"):
    waiting: str
    lock_scope: str
    next_letter: str
    begin_try: str
    call_off: str
    lock_letter: str
    apply_mark: str
    outcome: str
    park_mark: str
    resolve: str
    fail: str
    hold_back: str
    oldest: str


@dataclass(frozen=True, slots=True)
class Letter:
    """A letter that is to be handled once more.

    Attributes:
        n: Its number, in the order of parking.
        attempts: How often its event has failed.
        held_key: Name of the key that it holds or waits behind.
        asked_by: Who wants it handled.
        turn: Its place among the letters of its key: its number, or that of the letter it was edited from.
    """

    id: UUID
    n: int
    tenant: str
    event_id: UUID
    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: bytes
    sent_at: datetime | None
    code: str
    attempts: int
    held_key: bytes | None
    asked_by: str
    turn: int

    @property
    def record(self) -> Record:
        """The record as it was read from Kafka."""
        at = -1 if self.sent_at is None else round(self.sent_at.timestamp() * 1000)
        headers = unpack_headers(self.headers)
        return Record(self.topic, self.partition, self.offset, self.key, self.value, headers, at)


class RedriveStore:
    """Letters of one consumer.

    Args:
        consumer: The inbox identity.
        ids: For audit entries.
    """

    def __init__(self, consumer: str, ids: Ids) -> None:
        self.scope = scope_of(consumer)
        self._consumer = consumer
        self._ids = ids

    async def lock(self, connection: asyncpg.Connection[Any]) -> bool:
        """Keep other processes from this consumer's letters while the transaction is open; False if one is at it."""
        return bool(await connection.fetchval(_Sql.lock_scope, self.scope))

    async def next(self, connection: asyncpg.Connection[Any]) -> Letter | None:
        """Return the lowest letter that is asked for and whose turn it is."""
        row = await connection.fetchrow(_Sql.next_letter, self.scope)
        return None if row is None else Letter(**row)

    async def begin(self, pool: asyncpg.Pool[Any], letter: Letter) -> int | None:
        """Commit that a letter is being tried; return the number of the try, None when it is not asked for any more."""
        tries: int | None = await pool.fetchval(_Sql.begin_try, letter.id)
        return tries

    async def call_off(self, pool: asyncpg.Pool[Any], letter: Letter) -> None:
        """Commit that a try was called off."""
        await pool.execute(_Sql.call_off, letter.id)

    async def take(self, connection: asyncpg.Connection[Any], letter: Letter) -> bool:
        """Lock hold and letter, in this order; tell whether it is still asked for and still its turn."""
        if letter.held_key is not None:
            await connection.execute(asking.Sql.lock_hold, self.scope, letter.topic, letter.held_key)
        # A statement of its own: its snapshot shows what the lock had to wait for.
        return bool(await connection.fetchval(_Sql.lock_letter, letter.id))

    async def apply_mark(self, connection: asyncpg.Connection[Any], letter: Letter) -> bool | None:
        """Turn the parked inbox row into an applied one.

        Returns:
            Whether it was parked; None when there is no row.
        """
        if await connection.fetchval(_Sql.apply_mark, self._consumer, letter.event_id):
            return True
        return False if await connection.fetchval(_Sql.outcome, self._consumer, letter.event_id) else None

    async def park_mark(self, pool: asyncpg.Pool[Any], letter: Letter) -> None:
        """Undo `apply_mark`, where a handler has committed it."""
        await pool.execute(_Sql.park_mark, self._consumer, letter.event_id)

    async def resolve(self, connection: asyncpg.Connection[Any], letter: Letter, why: str) -> None:
        """Close a letter in the transaction of its effect; its key goes on."""
        await connection.execute(_Sql.resolve, letter.id)
        await asking.go_on(connection, self.scope, letter.topic, letter.held_key, letter.asked_by)
        await self._audit(connection, letter, "letter.resolved", why, {"status": "RESOLVED"})

    async def fail(self, pool: asyncpg.Pool[Any], letter: Letter, reason: Reason, tries: int) -> bool:
        """Open a letter again with how it has failed now; return whether it was still asked for."""
        async with pool.acquire() as connection, connection.transaction():
            if letter.held_key is not None:
                await connection.execute(asking.Sql.lock_hold, self.scope, letter.topic, letter.held_key)
            message = for_people(reason.message)
            failed = await connection.fetchval(
                _Sql.fail, letter.id, reason.stage, reason.code, message, reason.recoverable, tries
            )
            if not failed:
                return False
            if letter.held_key is not None:
                await connection.execute(
                    _Sql.hold_back, self.scope, letter.topic, letter.held_key, letter.turn
                )
            after = {"status": "OPEN", "code": reason.code}
            await self._audit(connection, letter, "letter.failed", message, after)
        return True

    async def _audit(
        self, connection: Any, letter: Letter, act: str, reason: str, after: dict[str, str]
    ) -> None:
        about = {
            "n": letter.n,
            "scope": self.scope,
            "topic": letter.topic,
            "code": letter.code,
            "status": LetterStatus.RETRY_PENDING,
            "tenant": letter.tenant,
        }
        await asking.audit(
            connection, self._ids, about, by="system", kind="SYSTEM", act=act, reason=reason, after=after
        )


async def waiting(pool: asyncpg.Pool[Any], scopes: Sequence[str]) -> list[str]:
    """Return those scopes that have a letter to be handled now."""
    return [row["scope"] for row in await pool.fetch(_Sql.waiting, list(scopes))]


async def oldest(pool: asyncpg.Pool[Any], scopes: Sequence[str]) -> tuple[int, timedelta | None]:
    """Return how many letters are open, and how old the oldest is."""
    row = await pool.fetchrow(_Sql.oldest, list(scopes))
    assert row is not None
    return row["amount"], row["oldest"]
