"""Parking: letters, the keys they hold, and the copies of them that other tools read."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, TypeAlias
from uuid import UUID

import asyncpg

from ..schemas.packing import pack_headers
from ..streams import measures
from ..streams.metrics import meters
from ..streams.queries import Queries
from . import asking
from .letter import for_people, letter_id, scope_of, sent_at
from .model import BEHIND, Item, Reason

logger = logging.getLogger("milepost")

Parked: TypeAlias = tuple[Item, Reason]
#: Called with letters that are new, in their transaction.
Report: TypeAlias = Callable[
    ["asyncpg.Connection[Any]", str, Sequence[tuple[UUID, Item, Reason]]], Awaitable[None]
]


class _Sql(Queries, file="letters.sql"):
    held: str
    hold_keys: str
    mark_parked: str
    insert_letters: str


class Letters:
    """Letters and holds of one consumer.

    Args:
        consumer: The inbox identity.
        hold_key: Whether a letter holds its key.
        report: Told of every new letter, in its transaction; its first arguments are connection and consumer.
    """

    def __init__(self, consumer: str, *, hold_key: bool = False, report: Report | None = None) -> None:
        self.scope = scope_of(consumer)
        self._consumer = consumer
        self._hold_key = hold_key
        self._report = report

    async def held(
        self, connection: asyncpg.Connection[Any], topic: str, keys: Collection[bytes]
    ) -> set[bytes]:
        """Return which of these keys are held, and keep them from being released while the transaction is open."""
        rows = await connection.fetch(_Sql.held, self.scope, topic, list(keys))
        return {row["key"] for row in rows}

    async def mark_parked(self, connection: asyncpg.Connection[Any], ids: Sequence[UUID]) -> None:
        """Turn inbox rows of this transaction into those of parked events."""
        await connection.execute(_Sql.mark_parked, self._consumer, list(ids))

    async def park(
        self,
        connection: asyncpg.Connection[Any],
        parked: Sequence[Parked],
        locked: Collection[bytes] = (),
    ) -> None:
        """Store dead letters of one partition and hold their keys; a letter that is there stays as it is.

        Args:
            parked: In offset order.
            locked: Keys that `held` has found in this transaction.
        """
        if not parked:
            return
        if self._hold_key:
            await self._hold(connection, parked, locked)
        ids = [letter_id(self.scope, item.record) for item, _ in parked]
        rows = await connection.fetch(
            _Sql.insert_letters, self.scope, ids, *_columns(parked), [self._holds(*one) for one in parked]
        )
        new = {row["id"] for row in rows}
        old = [one for id, one in zip(ids, parked, strict=True) if id not in new]
        for name in {self._holds(*one) for one in old} - {None, *locked}:
            # A letter that is settled holds nothing when its record comes again; an open one does.
            await asking.go_on(connection, self.scope, parked[0][0].record.topic, name, "system")
        told = [(id, *one) for id, one in zip(ids, parked, strict=True) if id in new]
        self._say([one[1:] for one in told])
        if (found := meters()) is not None:
            for _, _, reason in told:
                found.add(measures.LETTERS, (self._consumer, reason.code))
        if told and self._report is not None:
            await self._report(connection, self._consumer, told)

    def _say(self, parked: Sequence[Parked]) -> None:
        """Log one line for letters that are new, those that only wait left out; words of an event are never in it."""
        found = [(item, reason) for item, reason in parked if reason.code != BEHIND.code]
        if found:
            (item, reason), record = found[0], found[0][0].record
            place = f"{record.topic}/{record.partition} at {record.offset}"
            more = f", and {len(found) - 1} more" if len(found) > 1 else ""
            logger.warning(
                "%s: parking event %s (%s): %s%s", self._consumer, item.id, place, reason.code, more
            )

    async def _hold(
        self, connection: asyncpg.Connection[Any], parked: Sequence[Parked], locked: Collection[bytes]
    ) -> None:
        reasons: dict[bytes, str] = {}
        for item, reason in parked:
            name = self._holds(item, reason)
            if name is not None and name not in locked:
                reasons.setdefault(name, for_people(f"{reason.code}: {reason.message}"))
        if reasons:
            topic = parked[0][0].record.topic
            await connection.execute(_Sql.hold_keys, self.scope, topic, list(reasons), list(reasons.values()))

    def _holds(self, item: Item, reason: Reason) -> bytes | None:
        return item.hold_name if self._hold_key and reason.holds else None


def _columns(parked: Sequence[Parked]) -> tuple[list[Any], ...]:
    """Return the columns of letters, from tenant to recoverable."""
    return (
        [item.tenant for item, _ in parked],
        [item.id for item, _ in parked],
        [item.record.topic for item, _ in parked],
        [item.record.partition for item, _ in parked],
        [item.record.offset for item, _ in parked],
        [item.record.key for item, _ in parked],
        [item.record.value for item, _ in parked],
        [pack_headers(item.record.headers) for item, _ in parked],
        [sent_at(item.record) for item, _ in parked],
        [reason.stage for _, reason in parked],
        [reason.code for _, reason in parked],
        [for_people(reason.message) for _, reason in parked],
        [reason.attempts for _, reason in parked],
        [reason.first_at for _, reason in parked],
        [reason.recoverable for _, reason in parked],
    )
