"""Making a restored copy of a database relay again: its stored transaction numbers are given meaning here.

A row's `xid` counts in the cluster that wrote it. After a restore from a dump it means nothing, so the relay stops
(MP411). The last position that came along says which rows had been sent when the dump was made. Those keep quiet; all
others get the number of this transaction, so that they are sent next, in the order of their numbers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import asyncpg

from ..schemas.errors import StateError
from ..schemas.ids import Ids
from ..streams.queries import Queries
from .unpark import Sql as AuditSql


class Sql(Queries, file="rebaseline.sql"):
    """Queries of this module."""

    lock_lease: str
    stored: str
    begin: str
    count_rows: str
    requeue_unsent: str
    quiet_sent: str
    write_position: str


@dataclass(frozen=True, slots=True)
class Rebaselined:
    """What was done, or would be.

    Attributes:
        unsent: Rows that are sent next.
        sent: Rows that had been sent when the dump was made, and are not sent again.
        old_system: Cluster that last relayed this outbox.
        new_system: This cluster.
        done: False for a preview.
    """

    unsent: int
    sent: int
    old_system: int
    new_system: int
    done: bool


async def rebaseline(
    connection: asyncpg.Connection[Any],
    *,
    by: str,
    reason: str,
    ids: Ids,
    outbox: str = "outbox",
    preview: bool = False,
) -> Rebaselined:
    """Let a restored copy relay on: sent rows stay quiet, unsent ones go out in order. One transaction.

    What the original sent after its last stored position, a page at most, or after the dump was made, is sent again
    here under the same ids: inboxes drop it for as long as they remember. Keep the original from relaying first.

    Args:
        connection: Driver connection without an open transaction, of the tables' owner.
        by: Who does it.
        reason: Why, for the audit.
        ids: Makes the audit entry's id.
        preview: Only count.

    Raises:
        StateError: MP423 this cluster relayed last, or nobody did: there is nothing to mend. MP424 this database user
            may not change the outbox.
    """
    async with connection.transaction(readonly=preview):
        # Before this transaction has a number: whatever is running now, or comes later, is read by the next relay.
        begun = await connection.fetchval(Sql.begin)
        if not preview:
            await connection.execute(Sql.lock_lease, outbox)
        stored = await _stored(connection, outbox)
        facts = (stored["previous"], stored["current"], stored["last_seq"], stored["restored_by"])
        counted = await connection.fetchrow(Sql.count_rows, *facts)
        assert counted is not None
        if not preview:
            await _rewrite(connection, outbox, begun, facts)
            await _audit(connection, stored, counted, by=by, reason=reason, ids=ids)
    return Rebaselined(
        counted["unsent"], counted["sent"], stored["system_identifier"], stored["present"], not preview
    )


async def _stored(connection: asyncpg.Connection[Any], outbox: str) -> asyncpg.Record:
    stored: asyncpg.Record | None = await connection.fetchrow(Sql.stored, outbox)
    if stored is None or stored["system_identifier"] == stored["present"]:
        raise StateError(
            "MP423",
            "rebaseline: this database cluster relayed the outbox last, or nobody did, so its transaction numbers "
            "are right. Nothing was changed.",
        )
    return stored


async def _rewrite(
    connection: asyncpg.Connection[Any], outbox: str, begun: Any, facts: tuple[Any, ...]
) -> None:
    try:
        await connection.execute(Sql.quiet_sent, *facts, begun)
        await connection.execute(Sql.requeue_unsent, *facts)
    except asyncpg.InsufficientPrivilegeError as error:
        raise StateError(
            "MP424",
            f"rebaseline: this database user may not change the outbox ({error}). Run it as the user that ran "
            "`milepost migrate`. Nothing was changed.",
        ) from error
    await connection.execute(Sql.write_position, outbox, begun)


async def _audit(
    connection: asyncpg.Connection[Any],
    stored: asyncpg.Record,
    counted: asyncpg.Record,
    *,
    by: str,
    reason: str,
    ids: Ids,
) -> None:
    await connection.execute(
        AuditSql.write_audit,
        ids.new(),
        "",
        by,
        "PERSON",
        "outbox.rebaseline",
        reason,
        json.dumps({"system": str(stored["system_identifier"]), "position": stored["words"]}),
        json.dumps({"system": str(stored["present"])}),
        json.dumps({"unsent": counted["unsent"], "sent": counted["sent"]}),
    )
