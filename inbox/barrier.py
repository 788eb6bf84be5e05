"""Operations of a participant: each direction happens at most once, and an undo that comes first blocks the do."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ..schemas.commands import Direction, Reply
from ..schemas.errors import StateError
from ..streams.queries import Queries

if TYPE_CHECKING:
    import asyncpg

    Connection: TypeAlias = asyncpg.Connection[Any]

Outcome: TypeAlias = Literal["PENDING", "DONE", "REFUSED", "BLOCKED", "NOTHING_TO_UNDO"]


class _Sql(Queries, file="barrier.sql"):
    begin: str
    find: str
    finish: str
    withdraw: str


@dataclass(frozen=True, slots=True)
class Known:
    """What became of one direction of an operation.

    Attributes:
        reply: None while it is under way in this very transaction, and of a blocked do.
    """

    outcome: Outcome
    fingerprint: bytes
    reply: Reply | None


@dataclass(frozen=True, slots=True)
class Barrier:
    """The two rows of an operation, one a direction.

    Attributes:
        connection: Connection with an open READ COMMITTED transaction.
        consumer: The participant.
        run: With `step`, which operation it is.
    """

    connection: Connection
    consumer: str
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
        return bool(
            await self.connection.fetchval(_Sql.begin, *self._key(direction), outcome, command, fingerprint)
        )

    async def find(self, direction: Direction) -> Known | None:
        """Return what became of a direction; None when nobody has begun it."""
        row = await self.connection.fetchrow(_Sql.find, *self._key(direction))
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
                f"participant {self.consumer}: the memory of operation {self.run} {self.step} was removed while "
                "its command was handled. It is tried again by itself.",
            )
        return found

    async def finish(self, direction: Direction, outcome: Outcome, reply: Reply) -> None:
        """Store what became of a direction that this transaction has begun, with its reply."""
        headers = json.dumps(dict(reply.headers), ensure_ascii=False)
        await self.connection.fetchval(
            _Sql.finish, *self._key(direction), outcome, reply.type, reply.key, reply.payload, headers
        )

    async def withdraw(self, direction: Direction) -> None:
        """Forget that this transaction has begun a direction."""
        await self.connection.fetchval(_Sql.withdraw, *self._key(direction))

    def _key(self, direction: Direction) -> tuple[str, str, str, str, str]:
        return self.consumer, self.tenant, self.run, self.step, direction
