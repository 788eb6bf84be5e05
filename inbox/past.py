"""What the inbox stores about how far partitions were read, beside the next offsets; for a `GroupReader`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from ..schemas.envelope import Record
from ..streams.database import Database
from ..streams.queries import Queries
from ..streams.reader_start import StartAgain
from .failures import Underneath
from .store import InboxStore, Partition


class _Sql(Queries, file="past.sql"):
    moved_at: str
    move_back: str
    forget_attempts: str


class StoredPast:
    """A consumer's past.

    Args:
        consumer: The inbox identity.
        database: Opened pool.
        store: Its inbox.
        forget: Told of a partition whose topic was made anew.
    """

    def __init__(
        self, consumer: str, database: Database, store: InboxStore, forget: Callable[[Partition], None]
    ) -> None:
        self._consumer = consumer
        self._database = database
        self._store = store
        self._forget = forget
        self._stored: dict[Partition, int] = {}

    def found(self, partitions: Sequence[Partition], stored: Mapping[Partition, int]) -> None:
        """Note where partitions stand that are being taken over."""
        self._stored.update({partition: stored.get(partition, 0) for partition in partitions})

    async def move(self, connection: Any, last: Record) -> None:
        """Store in the open transaction that everything up to `last` is done.

        Raises:
            Underneath: With StartAgain, when the stored position went back: this is the database of an earlier time (a
                restored backup, or a standby that was behind), and the effects since then are gone from it.
        """
        before = await self._store.move_position(connection, last)
        known = self._stored.get((last.topic, last.partition), 0)
        if before is not None and before < known:
            error = StartAgain(
                f"{last.topic}/{last.partition}: the database has position {before}, and {known} was committed to it; "
                "it has gone back in time, so reading starts again where it stands"
            )
            raise Underneath(error) from error

    def moved(self, last: Record) -> None:
        """Note that what `move` stored was committed."""
        self._stored[last.topic, last.partition] = last.offset + 1

    async def moved_at(self, partition: Partition) -> datetime | None:
        """Return when the stored position was last moved, by the database's clock; None without one."""
        found: datetime | None = await self._database.pool.fetchval(_Sql.moved_at, self._consumer, *partition)
        return found

    async def begin_anew(self, partition: Partition, offset: int) -> None:
        """Move the stored position back to `offset`: the topic was made anew, and what was stored is of the old one.

        Inbox rows stay: an event that was in the old topic and is in the new one is still the same event.
        """
        async with self._database.pool.acquire() as connection, connection.transaction():
            await connection.execute(_Sql.move_back, self._consumer, *partition, offset)
            await connection.execute(_Sql.forget_attempts, self._consumer, *partition)
        self._stored.pop(partition, None)
        self._forget(partition)
