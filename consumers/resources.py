"""Resource locks in PostgreSQL: taken by a start, passed on by what becomes final, given to whoever is first.

A transaction that has a run's row takes the lock's advisory lock last, after the locks of its waits. It never touches
the row of the run that comes next: that one is told by a message, and looks by itself if the message is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Any
from uuid import UUID

import asyncpg

from ..sagas.context import RunRef
from ..sagas.model import LockAct, Run
from ..schemas.errors import StateError
from ..streams.queries import Queries


class _Sql(Queries, file="resources.sql"):
    take: str
    untake: str
    find_holder: str
    forget_key: str
    enter: str
    lock_name: str
    hardly_wait: str
    wait_again: str
    leave: str
    give: str


@dataclass(frozen=True, slots=True)
class Granted:
    """A run whose turn has come; it is to be told."""

    run_id: UUID
    tenant: str
    service: str
    correlation_id: str
    traceparent: str | None

    @classmethod
    def of(cls, run: Run, service: str) -> Granted:
        """Return a run of this service."""
        return cls(run.id, run.tenant, service, run.correlation_id, run.traceparent)


async def take(connection: asyncpg.Connection[Any], ref: RunRef, name: str, *, reject: bool) -> bool:
    """Take a lock for a run that is being started; another start of the same moment is waited for.

    Args:
        connection: In the caller's transaction.
        name: Name of the lock.
        reject: Refuse when another run has it.

    Returns:
        Whether the run has it now.

    Raises:
        StateError: MP334 when another run has it and `reject` is set; the transaction is as it was before the start.
    """
    while True:
        if await connection.fetchval(_Sql.take, ref.tenant, name, ref.id) is not None:
            return True
        if not reject:
            return False
        holder = await connection.fetchrow(_Sql.find_holder, ref.tenant, name)
        if holder is not None:
            await connection.execute(_Sql.forget_key, ref.tenant, ref.saga, ref.key, ref.id)
            raise _locked(ref, name, holder)


async def untake(connection: asyncpg.Connection[Any], run: Run) -> None:
    """Give back the lock of a run that was over at its start, in the transaction that took it.

    Nobody has seen it there, so that nobody has to be kept out meanwhile.
    """
    await connection.execute(_Sql.untake, run.tenant, run.resource, run.id)


def _locked(ref: RunRef, name: str, holder: asyncpg.Record) -> StateError:
    named = f"{holder['saga']}/{holder['key']}" if holder["saga"] else f"run {holder['run_id']}"
    since = f"{holder['since'].astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"
    return StateError(
        "MP334",
        f"start(): {ref} needs the lock {name}, which {named} has since {since} (it is {holder['state']}). Nothing was "
        f'started. Start it again when that run is over, or say if_locked="queue". Run: {holder["run_id"]}',
    )


async def carry_out(connection: asyncpg.Connection[Any], run: Run, act: LockAct) -> Sequence[Granted]:
    """Do what a stored decision says about a run's lock.

    Args:
        connection: In the transaction that stored the decision.

    Returns:
        The run whose turn has come, if any.
    """
    assert run.resource is not None
    if act == "enter":
        await connection.execute(_Sql.enter, run.tenant, run.resource, run.id)
        return ()
    if act == "ask":
        return await _give(connection, run.tenant, run.resource)
    await connection.execute(_Sql.lock_name, run.tenant, run.resource)
    rows = await connection.fetch(_Sql.leave, run.tenant, run.resource, run.id)
    return [Granted(*row) for row in rows]


async def _give(connection: asyncpg.Connection[Any], tenant: str, name: str) -> Sequence[Granted]:
    await connection.execute(_Sql.lock_name, tenant, name)
    try:
        async with connection.transaction():
            await connection.execute(_Sql.hardly_wait)
            rows = await connection.fetch(_Sql.give, tenant, name)
            await connection.execute(_Sql.wait_again)
    except asyncpg.LockNotAvailableError:
        return ()  # a start that has not committed may have it; whoever waits looks again
    return [Granted(*row) for row in rows]
