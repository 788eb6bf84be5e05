"""Operations of a participant: each direction happens at most once, and an undo that comes first blocks the do.

Commands of one batch share a transaction, so their operations are begun in one statement and finished in one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from ..schemas.commands import Direction, Reply
from ..schemas.errors import StateError
from ..streams.queries import Queries

if TYPE_CHECKING:
    import asyncpg

    Connection: TypeAlias = asyncpg.Connection[Any]
    Pool: TypeAlias = asyncpg.Pool[Any]

Outcome: TypeAlias = Literal["PENDING", "DONE", "REFUSED", "BLOCKED", "NOTHING_TO_UNDO"]


class _Sql(Queries, file="barrier.sql"):
    begin: str
    begin_many: str
    find: str
    finish: str
    withdraw: str
    first_point: str
    next_point: str
    back: str


class Key(NamedTuple):
    """One direction of an operation."""

    tenant: str
    run: str
    step: str
    direction: Direction


@dataclass(frozen=True, slots=True)
class Wanted:
    """A direction that a batch is going to take.

    Attributes:
        command: CloudEvents id of the command.
        fingerprint: Of its content.
    """

    key: Key
    command: str
    fingerprint: bytes


@dataclass(frozen=True, slots=True)
class Known:
    """What became of one direction of an operation.

    Attributes:
        reply: None while it is under way in this very transaction, and of a blocked do.
    """

    outcome: Outcome
    fingerprint: bytes
    reply: Reply | None


@dataclass(slots=True)
class Barriers:
    """What the commands of one transaction share.

    Attributes:
        connection: Connection with an open READ COMMITTED transaction.
        consumer: The participant.
    """

    connection: Connection
    consumer: str
    _begun: dict[Key, bool] = field(default_factory=dict)
    _finished: dict[Key, tuple[Outcome, Reply]] = field(default_factory=dict)
    _pointed: bool = False

    async def begin(self, wanted: Sequence[Wanted]) -> None:
        """Take directions, each once whoever else is at it has ended; `Barrier.begin` then says which are new.

        Args:
            wanted: Each operation at most once, and in this transaction nobody else's.
        """
        columns = zip(*((*one.key, one.command, one.fingerprint) for one in wanted), strict=True)
        rows = await self.connection.fetch(_Sql.begin_many, self.consumer, *columns)
        new = {tuple(row) for row in rows}
        self._begun = {one.key: one.key in new for one in wanted}

    def taken(self, key: Key) -> bool | None:
        """Return whether a direction that was taken in advance is new, once; None when it was not."""
        return self._begun.pop(key, None)

    def finish(self, key: Key, outcome: Outcome, reply: Reply) -> None:
        """Keep what became of a direction until `store`."""
        self._finished[key] = outcome, reply

    def holds(self, key: Key) -> bool:
        """Tell whether what became of a direction is kept here and not stored yet."""
        return key in self._finished

    async def store(self, to: Connection | Pool | None = None) -> None:
        """Store what became of the directions that were finished; before the transaction ends.

        Args:
            to: Another connection, where a function has ended the transaction itself.
        """
        done, self._finished = self._finished, {}
        if done:
            rows = (
                (self.consumer, *key, outcome, reply.type, reply.key, reply.payload, _headers(reply))
                for key, (outcome, reply) in done.items()
            )
            await (to or self.connection).executemany(_Sql.finish, rows)

    async def withdraw(self, keys: Iterable[Key], to: Connection | Pool | None = None) -> None:
        """Forget that this transaction has begun directions."""
        await (to or self.connection).executemany(_Sql.withdraw, [(self.consumer, *key) for key in keys])

    async def abandoned(self, pool: Pool) -> None:
        """Store and forget what is to be, after a function has ended the transaction, and perhaps committed it."""
        await self.store(pool)
        await self.withdraw(self._begun, pool)

    async def point(self) -> None:
        """Set the savepoint to which `back` goes; the one before it is left."""
        await self.connection.execute(_Sql.next_point if self._pointed else _Sql.first_point)
        self._pointed = True

    async def back(self) -> None:
        """Take back what was written since `point`."""
        await self.connection.execute(_Sql.back)


@dataclass(frozen=True, slots=True)
class Barrier:
    """The two rows of an operation, one a direction.

    Attributes:
        shared: What it shares with the others of its transaction.
        run: With `step`, which operation it is.
    """

    shared: Barriers
    tenant: str
    run: str
    step: str

    async def begin(
        self, direction: Direction, command: str, fingerprint: bytes, *, outcome: Outcome = "PENDING"
    ) -> bool:
        """Take a direction, once whoever else is at it has ended.

        Args:
            command: CloudEvents id of the command.
            fingerprint: Of its content.
            outcome: PENDING, or BLOCKED for a do that is never to happen.

        Returns:
            False when somebody had it before.
        """
        arguments = (self.shared.consumer, *self.key(direction), outcome, command, fingerprint)
        return bool(await self.shared.connection.fetchval(_Sql.begin, *arguments))

    async def find(self, direction: Direction) -> Known | None:
        """Return what became of a direction; None when nobody has begun it."""
        shared, key = self.shared, self.key(direction)
        if shared.holds(key):
            await shared.store()
        row = await shared.connection.fetchrow(_Sql.find, shared.consumer, *key)
        if row is None:
            return None
        headers = row["reply_headers"]
        reply = headers and Reply(
            row["reply_type"], row["reply_key"], row["reply_payload"], json.loads(headers)
        )
        return Known(row["outcome"], row["fingerprint"], reply or None)

    async def known(self, direction: Direction) -> Known:
        """Return what became of a direction that was begun.

        Raises:
            StateError: MP474 when its row has gone meanwhile; another try begins it anew.
        """
        found = await self.find(direction)
        if found is None:
            raise StateError(
                "MP474",
                f"participant {self.shared.consumer}: the memory of operation {self.run} {self.step} was removed "
                "while its command was handled. It is tried again by itself.",
            )
        return found

    def finish(self, direction: Direction, outcome: Outcome, reply: Reply) -> None:
        """Say what became of a direction that this transaction has begun, with its reply."""
        self.shared.finish(self.key(direction), outcome, reply)

    async def withdraw(self, direction: Direction) -> None:
        """Forget that this transaction has begun a direction."""
        await self.shared.withdraw([self.key(direction)])

    def key(self, direction: Direction) -> Key:
        """Return the name of a direction."""
        return Key(self.tenant, self.run, self.step, direction)


def _headers(reply: Reply) -> str:
    return json.dumps(dict(reply.headers), ensure_ascii=False)
