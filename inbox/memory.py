"""Since when an intake's inbox remembers what was applied, and what older events mean."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta

from ..schemas.ids import Clock
from ..streams.database import Database
from . import model
from .store import InboxStore, Partition

#: How often to see up to when the inbox was purged, in seconds; rows outlast what settings say by much more than that.
_EVERY = 60.0


class Memory:
    """What an intake has to know to tell what is too old.

    Args:
        store: The consumer's inbox.
        database: Where it is; its settings say how long the inbox remembers.
        clock: Elapsed time, and wall time between two looks at the database's.
        unlimited: Topics that keep their records for good: what is older than the inbox's memory counts there as
            applied when it was read before, and is applied when it was not.
    """

    def __init__(
        self, store: InboxStore, database: Database, clock: Clock, unlimited: Collection[str]
    ) -> None:
        self._store = store
        self._database = database
        self._clock = clock
        self._unlimited = frozenset(unlimited)
        self._read_up_to: dict[Partition, int] = {}
        self._purged_below: datetime | None = None
        self._ahead = timedelta(0)
        self._looked: float | None = None

    def taken_over(self, partitions: Sequence[Partition], stored: Mapping[Partition, int]) -> None:
        """Note how far partitions had been read when they were taken over."""
        self._read_up_to.update({partition: stored.get(partition, 0) for partition in partitions})

    def now(self) -> datetime:
        """Return the database's time, as far as this process knows it: its own clock may be minutes off."""
        return self._clock.now() + self._ahead

    async def oldest_ms(self) -> float:
        """Return since when the inbox remembers, in milliseconds since 1970 (UTC)."""
        elapsed = self._clock.monotonic()
        if self._looked is None or elapsed - self._looked >= _EVERY:
            now, self._purged_below = await self._store.purged_below(self._database.pool)
            self._ahead = now - self._clock.now()
            self._looked = elapsed
        return model.oldest_kept(self.now(), self._database.settings.keep_inbox, self._purged_below)

    async def done_below(self, partition: Partition) -> int | None:
        """Return the offset below which all of a partition was read before; None where its topic forgets by itself."""
        if partition[0] not in self._unlimited:
            return None
        if partition not in self._read_up_to:
            self.taken_over([partition], await self._store.positions(self._database.pool, [partition]))
        return self._read_up_to[partition]
