"""Signals meet waits: stored first, matched second, under one lock per (tenant, type, key) on both sides.

The signal side never locks a run; its caller tells the run by a message, and a matched step becomes due soon, so that
a message that was lost is written again by the waker. Run these inside an open READ COMMITTED transaction. Lock order
on both sides: advisory locks (sorted), then wait and signal rows; the signal side never waits for a step row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from uuid import UUID

from asyncpg import DataError

from ..schemas.texts import unstorable
from ..streams.queries import Queries

if TYPE_CHECKING:
    import asyncpg
    from asyncpg.pool import PoolConnectionProxy

    Connection: TypeAlias = asyncpg.Connection[Any] | PoolConnectionProxy[Any]


#: When the waker looks at a step whose wait was matched, unless its run has gone on by then.
NUDGE = timedelta(minutes=1)


class _Sql(Queries, file="signals.sql"):
    lock_keys: str
    lock_wait: str
    insert_signals: str
    match_signals: str
    open_wait: str
    close_wait: str
    find_signal: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSignal:
    """An awaited event as it arrived.

    Attributes:
        id: Row id of the signal, a UUID version 7.
        source: CloudEvents source; (tenant, source, event_id) makes the signal unique.
        key: Correlation text that waits match on.
        payload: The event's data as JSON text; numbers keep every digit.
        version: Version of the payload; None for that of whichever class reads it.
        keep: How long an unmatched signal stays matchable.
    """

    id: UUID
    tenant: str
    source: str
    event_id: str
    type: str
    key: str
    payload: str
    traceparent: str | None = None
    keep: timedelta = field(default=timedelta(days=7))
    version: int | None = None


class Matched(NamedTuple):
    """A wait that a new signal satisfied; its run is to be told."""

    run_id: UUID
    step: str
    iteration: str
    generation: int


class Refused(NamedTuple):
    """A signal that PostgreSQL cannot hold (U+0000, lone surrogate, number beyond numeric); to be parked."""

    signal: NewSignal
    reason: str


class Stored(NamedTuple):
    """What became of a batch of signals."""

    matched: list[Matched]
    refused: list[Refused]


async def lock_keys(connection: Connection, keys: Sequence[tuple[str, str, str]]) -> None:
    """Take the locks of (tenant, type, key), in one order whatever the given one is.

    A transaction that stores signals one after the other takes all their locks first; else two of them deadlock.
    Keys that PostgreSQL text cannot hold are passed over: nothing can be stored under them.

    Args:
        connection: Connection with an open transaction.
    """
    lockable = [key for key in keys if not any(unstorable(text) for text in key)]
    if lockable:
        tenants, types, texts = zip(*lockable, strict=True)
        await connection.execute(_Sql.lock_keys, list(tenants), list(types), list(texts))


async def store_signals(connection: Connection, signals: Sequence[NewSignal]) -> Stored:
    """Store signals and match them with open waits, the oldest wait of a key first.

    A signal whose (tenant, source, event_id) is already there changes nothing. It goes to the oldest wait
    of its key, and to every open wait that says broadcast; if nobody waits it stays for the first that comes.

    Args:
        connection: Connection with an open transaction.
        signals: In the order in which they arrived.

    Returns:
        Waits that are now matched, and signals that cannot be stored; those leave the transaction usable.
    """
    refused = [Refused(signal, reason) for signal in signals if (reason := _unlockable(signal))]
    given = [signal for signal in signals if not _unlockable(signal)]
    if not given:
        return Stored([], refused)
    await lock_keys(connection, [(signal.tenant, signal.type, signal.key) for signal in given])
    new = await _insert(connection, given, refused)
    if not new:
        return Stored([], refused)
    fresh = [signal.id for signal in given if signal.id in new]
    rows = await connection.fetch(_Sql.match_signals, fresh, NUDGE)
    return Stored([Matched(*row) for row in rows], refused)


async def stored_id(connection: Connection, signal: NewSignal) -> UUID | None:
    """Return the row that a signal's (tenant, source, event_id) has: its own, or that of the first one."""
    found: UUID | None = await connection.fetchval(
        _Sql.find_signal, signal.tenant, signal.source, signal.event_id
    )
    return found


async def match_wait(  # noqa: PLR0917 - the columns of the row, in their order
    connection: Connection,
    run_id: UUID,
    tenant: str,
    step: str,
    iteration: str,
    generation: int,
    type: str,
    key: str,
    broadcast: bool = False,
) -> bool:
    """Begin to wait, and take the oldest signal that is already there.

    Args:
        connection: Connection with an open transaction that holds the run.
        type: CloudEvents type awaited.
        key: Correlation text awaited.
        broadcast: Whether one signal satisfies this wait together with others.

    Returns:
        True when a signal was waiting: the wait is MATCHED at once.
    """
    await lock_keys(connection, [(tenant, type, key)])
    matched = await connection.fetchval(
        _Sql.open_wait, run_id, tenant, step, iteration, generation, type, key, broadcast, NUDGE
    )
    return bool(matched)


async def close_wait(
    connection: Connection, run_id: UUID, step: str, iteration: str, generation: int
) -> bool:
    """End an open wait, for a timeout or a cancel.

    Returns:
        False when it is not open any more: a signal was faster, or it does not exist.
    """
    await connection.execute(_Sql.lock_wait, run_id, step, iteration, generation)
    return bool(await connection.fetchval(_Sql.close_wait, run_id, step, iteration, generation))


def _unlockable(signal: NewSignal) -> str | None:
    for name, text in (("tenant", signal.tenant), ("type", signal.type), ("key", signal.key)):
        if unstorable(text):
            return f"its {name} {text!r} holds U+0000 or a lone surrogate, which PostgreSQL text cannot"
    return None


async def _insert(connection: Connection, signals: Sequence[NewSignal], refused: list[Refused]) -> set[UUID]:
    """Insert all in one statement; where PostgreSQL refuses a value, one by one, to refuse only that one."""
    try:
        # A savepoint: one signal that cannot be stored must not end the caller's transaction.
        async with connection.transaction():
            rows = await connection.fetch(_Sql.insert_signals, *_columns(signals))
        return {row["id"] for row in rows}
    except DataError as error:
        if len(signals) == 1:
            refused.append(Refused(signals[0], str(error)))
            return set()
    stored: set[UUID] = set()
    for signal in signals:
        stored |= await _insert(connection, [signal], refused)
    return stored


def _columns(signals: Sequence[NewSignal]) -> tuple[list[Any], ...]:
    return (
        [signal.id for signal in signals],
        [signal.tenant for signal in signals],
        [signal.source for signal in signals],
        [signal.event_id for signal in signals],
        [signal.type for signal in signals],
        [signal.key for signal in signals],
        [signal.payload for signal in signals],
        [signal.traceparent for signal in signals],
        [signal.keep for signal in signals],
        [signal.version for signal in signals],
    )
