"""The upkeep role's third part: what only the owner of the tables may remove, because others can only add to it.

History and audit go by the month: a partition leaves when it ended longer ago than settings say, and when no run that
is still kept has a row in it. So nothing of a live run goes, however old, nor of a run that is still shown; a run that
lives for years keeps the months in which something happened to it. No row can come to such a month any more, since each
goes to the month of the instant at which it is written. As the outbox's, partitions leave by DETACH CONCURRENTLY with a
lock timeout, so that no writer waits, and one that was interrupted is finished at the next look.

Requests of persons and reconciliations go row by row, when they are old enough and their run is gone; so do proposals,
and acts on many that have ended, as long after as requests.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

import asyncpg

from ..schemas.settings import Settings
from ..streams.lifecycle import Stop
from ..streams.queries import Queries
from .retention import Kind, Policy, Retention

logger = logging.getLogger("milepost")

_STATEMENT = 60.0


class Sql(Queries, file="ageing.sql"):
    """Queries of this module."""

    owns_tables: str
    interrupted_detaches: str
    old_partitions: str
    write_needed: str
    write_detach: str
    write_finalize: str
    write_attach: str
    write_drop: str
    retire: str
    unretire: str
    shorten_chain: str
    purge_proposals: str
    purge_bulks: str
    purge_requests: str
    purge_reconciliations: str


#: What goes row by row. The instant that counts: of a request its answer, of a reconciliation when it was made.
OWNED: dict[Kind, Policy] = {
    "requests": Policy(lambda s: s.keep_requests, Sql.purge_requests, "milepost.request"),
    "reconciliations": Policy(lambda s: s.keep_history, Sql.purge_reconciliations, "milepost.reconciliation"),
}
#: What goes by the month. The instant that counts is the end of the month.
PARTITIONED: dict[Kind, Callable[[Settings], timedelta]] = {
    "history": lambda s: s.keep_history,
    "audit": lambda s: s.keep_audit,
}


class Ageing(Retention):
    """Removes old months of history and audit, and old requests and reconciliations; the user must own the tables.

    Arguments as `Retention`. Several processes may do it at once.
    """

    @property
    def name(self) -> str:
        """What health calls it; `--roles upkeep` runs it."""
        return "ageing"

    @property
    def policies(self) -> Mapping[Kind, Policy]:
        """What goes row by row."""
        return OWNED

    async def _tidy(self, connection: asyncpg.Connection[Any], stop: Stop) -> None:
        if not await connection.fetchval(Sql.owns_tables):
            raise asyncpg.InsufficientPrivilegeError(
                "this database user does not own history and audit. Run the role upkeep as the user that ran "
                "`milepost migrate` in one process at least"
            )
        await super()._tidy(connection, stop)
        for statement in (Sql.purge_proposals, Sql.purge_bulks):
            await connection.execute(statement, self._database.settings.keep_requests, timeout=_STATEMENT)
        for row in await connection.fetch(Sql.interrupted_detaches):
            await self._write(connection, Sql.write_finalize, row["parent"], row["name"])
        for kind, keep in PARTITIONED.items():
            row = await self._begin(connection, kind, keep(self._database.settings))
            if row is not None:
                await self._drop_old(connection, kind, row["bound"], stop)

    async def _drop_old(
        self, connection: asyncpg.Connection[Any], kind: Kind, bound: datetime, stop: Stop
    ) -> None:
        for row in await connection.fetch(Sql.old_partitions, kind, bound):
            if stop.asked:
                return
            name = row["name"]
            if await self._needed(connection, kind, name):
                if not row["attached"]:
                    await self._write(connection, Sql.write_attach, kind, name)
                    await self._retire(connection, Sql.unretire, kind, name)
                continue
            await self._retire(connection, Sql.retire, kind, name)
            if row["attached"]:
                await self._write(connection, Sql.write_detach, kind, name)
            await self._write(connection, Sql.write_drop, kind, name)
            await self._retire(connection, Sql.shorten_chain, kind, name)
            self.removed[kind] = self.removed.get(kind, 0) + 1
            logger.info("retention: dropped %s: it ended before %s", name, bound.isoformat())

    async def _retire(
        self, connection: asyncpg.Connection[Any], statement: str, kind: str, name: str
    ) -> None:
        """Note for the chain over the audit that a month goes by its age, or has come back."""
        if kind == "audit":
            await connection.execute(statement, name, timeout=_STATEMENT)

    async def _needed(self, connection: asyncpg.Connection[Any], kind: Kind, name: str) -> bool:
        question = await connection.fetchval(Sql.write_needed, kind, name)
        return bool(await connection.fetchval(question, timeout=_STATEMENT))

    async def _write(self, connection: asyncpg.Connection[Any], statement: str, kind: str, name: str) -> None:
        await connection.execute(await connection.fetchval(statement, kind, name), timeout=_STATEMENT)
