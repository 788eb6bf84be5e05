"""The upkeep role's second part: what is remembered no longer than settings say, by kind.

A walk goes over a table by blocks, or along the index of the times, a stretch per statement and transaction, and rests
as long as each took. So it keeps no row locked for longer than a statement of a few thousand rows, and no writer waits
for it. It needs no more rights than any other role; what only the owner may remove is of other parts (ageing.py, and
outbox/upkeep.py).

The inbox is what makes an event's effect happen once, so its rows outlast what intakes take for old by `MARGIN`: the
clock that dated an event and the database's may differ by that much, and an event whose row is gone is TOO_OLD for all.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Literal, TypeAlias

import asyncpg

from ..schemas.errors import ConnectError
from ..schemas.ids import Clock, SystemClock
from ..schemas.settings import Settings
from ..streams.database import Database, statement_cache
from ..streams.lifecycle import Health, Stop
from ..streams.queries import Queries
from .engine import DATABASE_ERRORS

logger = logging.getLogger("milepost")

Kind: TypeAlias = Literal[
    "inbox",
    "signals",
    "letters",
    "operations",
    "webhooks",
    "replays",
    "participants",
    "runs",
    "requests",
    "reconciliations",
    "artifacts",
    "history",
    "audit",
]

#: How much longer an inbox row is kept than events are applied: what clocks may differ by.
MARGIN = timedelta(hours=1)
#: How often each kind is looked at, whatever the number of processes.
EVERY = timedelta(hours=1)
#: Blocks of 8 kB in one statement: of the inbox, some 6,000 rows.
_BLOCKS = 100
#: Rows in one statement along an index.
_ROWS = 2_000
#: Runs in one statement, each with its steps and waits.
_RUNS = 500
_STATEMENT = 60.0
#: Longest rest after a statement, in seconds.
_REST = 5.0
#: How often to see whether something is due, in seconds.
_LOOK = 300.0
_AGAIN = 30.0


class Sql(Queries, file="retention.sql"):
    """Queries of this module."""

    begin_walk: str
    for_walks: str
    blocks: str
    purge_inbox: str
    purge_signals: str
    purge_letters: str
    purge_operations: str
    purge_webhooks: str
    purge_replays: str
    purge_participants: str
    purge_runs: str
    clear_artifacts: str


@dataclass(frozen=True, slots=True)
class Policy:
    """How long a kind of row is kept, and how its table is walked.

    Attributes:
        keep: From the settings; a row goes when its instant is older than that.
        statement: Removes the rows of one stretch.
        table: Walked by blocks; None when the statement goes along an index.
        rows: In one statement along an index.
    """

    keep: Callable[[Settings], timedelta]
    statement: str
    table: str | None = None
    rows: int = _ROWS


#: By kind. The instant that counts: of an inbox row when it was applied or parked; of a signal when it was matched or
#: expired, the later; of a letter when it was closed; of an operation its own expires_at; of a webhook when it was
#: done with; of a replay its last progress; of what a participant did when it did it; of a run its end.
POLICIES: dict[Kind, Policy] = {
    "inbox": Policy(lambda s: s.keep_inbox + MARGIN, Sql.purge_inbox, "milepost.inbox"),
    "signals": Policy(lambda s: s.keep_signals, Sql.purge_signals, "milepost.signal"),
    "letters": Policy(lambda s: s.keep_letters, Sql.purge_letters, "milepost.dead_letter"),
    "operations": Policy(lambda s: timedelta(0), Sql.purge_operations),
    "webhooks": Policy(lambda s: s.keep_webhooks, Sql.purge_webhooks),
    "replays": Policy(lambda s: s.keep_replays, Sql.purge_replays),
    "participants": Policy(lambda s: s.keep_participants, Sql.purge_participants),
    "runs": Policy(lambda s: s.keep_runs, Sql.purge_runs, rows=_RUNS),
}


class Retention:
    """Forgets what settings allow to forget; several processes may do it at once.

    Args:
        database: Where; opened here if it is not yet.
        clock: Source of elapsed time.
        every: How often each kind is walked, over all processes.
    """

    def __init__(self, database: Database, *, clock: Clock | None = None, every: timedelta = EVERY) -> None:
        self._database = database
        self._clock = clock or SystemClock()
        self._every = every
        self._trouble = ""
        self.removed: dict[Kind, int] = {}

    @property
    def policies(self) -> Mapping[Kind, Policy]:
        """What this part walks."""
        return POLICIES

    @property
    def name(self) -> str:
        """What health calls it; `--roles upkeep` runs it."""
        return "retention"

    def health(self) -> Health:
        """Return whether the last look worked; keeping too much for a while harms nobody, so that is no alarm yet."""
        return Health(True, self._trouble or "nothing in the way")

    async def run(self, stop: Stop) -> None:
        """Look at every kind at once and then again and again, until asked to stop."""
        while not stop.asked:
            pause = _LOOK
            try:
                await self._database.open()
                await self.tidy(stop)
                self._trouble = ""
            except (*DATABASE_ERRORS, ConnectError) as error:
                if not self._trouble:
                    logger.warning("retention: %s. Trying again.", str(error) or type(error).__name__)
                self._trouble = str(error) or type(error).__name__
                pause = _AGAIN
            await stop.wait(pause)

    async def tidy(self, stop: Stop) -> None:
        """Walk the kinds that nobody has walked lately.

        Raises:
            PostgresError: Something could not be done now; doing it again later is safe.
        """
        settings = self._database.settings
        connection = await asyncpg.connect(
            settings.dsn, timeout=10.0, statement_cache_size=statement_cache(settings)
        )
        try:
            if settings.pooler == "none":
                await connection.execute(Sql.for_walks)
            await self._tidy(connection, stop)
        finally:
            await connection.close(timeout=5.0)

    async def _tidy(self, connection: asyncpg.Connection[Any], stop: Stop) -> None:
        for kind, policy in self.policies.items():
            if stop.asked:
                return
            row = await self._begin(connection, kind, policy.keep(self._database.settings))
            if row is not None:
                # Intakes look once a minute how far the inbox was purged; the others' rows nobody goes by.
                bound = row["announced" if kind == "inbox" else "bound"]
                await self._walk(connection, kind, policy, bound, stop)

    async def _begin(
        self, connection: asyncpg.Connection[Any], kind: Kind, keep: timedelta
    ) -> asyncpg.Record | None:
        """Say that this kind is walked now; None when somebody did so a moment ago."""
        return await connection.fetchrow(Sql.begin_walk, kind, keep, self._every)

    async def _walk(
        self, connection: asyncpg.Connection[Any], kind: Kind, policy: Policy, bound: datetime, stop: Stop
    ) -> None:
        before = self.removed.get(kind, 0)

        async def remove(*where: object) -> int:
            status = await connection.execute(policy.statement, *where, timeout=_STATEMENT)
            gone = int(status.rpartition(" ")[2])
            self.removed[kind] = self.removed.get(kind, 0) + gone
            return gone

        if policy.table is None:
            while not stop.asked and await self._resting(partial(remove, bound, policy.rows), stop):
                pass
        else:
            blocks = await connection.fetchval(Sql.blocks, policy.table)
            for start in range(0, blocks, _BLOCKS):
                if stop.asked:
                    return
                await self._resting(partial(remove, (start, 0), (start + _BLOCKS, 0), bound), stop)
        if gone := self.removed.get(kind, 0) - before:
            logger.info("retention: removed %d rows of %s older than %s", gone, kind, bound.isoformat())

    async def _resting(self, act: Callable[[], Awaitable[int]], stop: Stop) -> int:
        """Do one stretch, and rest as long as it took: a walk takes at most half of one connection's time."""
        began = self._clock.monotonic()
        try:
            gone = await act()
        except asyncpg.LockNotAvailableError:
            # Somebody works with one of these rows; they are looked at again at the next walk.
            gone = 0
        await stop.wait(min(_REST, self._clock.monotonic() - began))
        return gone
