"""What cannot be sent: letters and holds, and how they go on. Every write is fenced by the lease's epoch."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from typing import Any
from uuid import UUID

import asyncpg

from ..schemas.packing import unpack_headers
from ..streams import measures
from ..streams.metrics import meters
from .lease import LeaseLost
from .log import PositionLog
from .position import Position, Row
from .routing import KEY_SCOPE, TOPIC_SCOPE, Parked, Routing, hold_key
from .store import ParkingSql, Sql

#: Letters, and bytes of them, that are sent together; keys that are looked at together.
_ROWS, _BYTES, _KEYS = 1000, 4_000_000, 100

#: Topic, and the record key as holds have it.
HeldKey = tuple[str, bytes]


class Parking:
    """The relay's letters and holds.

    Args:
        connection: The one that the position log writes on.
    """

    def __init__(
        self,
        connection: asyncpg.Connection[Any],
        log: PositionLog,
        outbox: str,
        epoch: int,
        *,
        timeout: float,
    ) -> None:
        self._connection = connection
        self._log = log
        self._outbox = outbox
        self._epoch = epoch
        self._timeout = timeout
        #: Of the letters that were read to be sent, by number.
        self._letters: dict[int, UUID] = {}

    async def load(self, routing: Routing) -> None:
        """Fill what is held, as stored, into the routing."""
        self._letters.clear()
        holds = await self._fetch(ParkingSql.load_holds)
        routing.held_topics = {
            hold["topic"]: _reason(hold["reason"]) for hold in holds if hold["scope"] == TOPIC_SCOPE
        }
        routing.held_keys = {(hold["topic"], hold["key"]) for hold in holds if hold["scope"] == KEY_SCOPE}

    async def park(self, parked: Sequence[Parked], position: Position) -> None:
        """Store letters and holds of a page together with the position behind it.

        Raises:
            LeaseLost: Somebody else leads.
        """
        async with self._connection.transaction():
            await self._fence()
            await self._execute(Sql.force_plan)
            recoverable = [letter.recoverable for letter in parked]
            await self._execute(ParkingSql.park_rows, *_columns(parked), recoverable)
            await self._hold(letter for letter in parked if letter.hold)
            await self._log.write(position)
        if (found := meters()) is not None:
            for letter in parked:
                found.add(measures.UNSENDABLE, (letter.code,))

    async def hold_topic(self, topic: str, code: str, message: str) -> None:
        """Hold a topic from now on.

        Raises:
            LeaseLost: Somebody else leads.
        """
        async with self._connection.transaction():
            await self._fence()
            await self._execute(ParkingSql.add_hold, TOPIC_SCOPE, topic, topic.encode(), f"{code}: {message}")
            await self._execute(ParkingSql.still_denied, topic)
            if code == "TOPIC_MISSING":
                await self._execute(ParkingSql.mark_missing, topic)

    async def asked_topics(self) -> set[str]:
        """Return held topics of which somebody wants letters to be sent now."""
        return {row["topic"] for row in await self._fetch(ParkingSql.asked_topics)}

    async def forsaken_topics(self, topics: Collection[str]) -> set[str]:
        """Return those of held topics of which no letter is open any more."""
        found = await self._fetch(ParkingSql.forsaken_topics, list(topics)) if topics else []
        return {row["topic"] for row in found}

    async def topic_letters(self, topic: str) -> list[Row]:
        """Return the next letters of a held topic, lowest number first."""
        return self._rows(await self._fetch(ParkingSql.topic_letters, topic, _ROWS, _BYTES))

    async def settle_topic(self, sent: Collection[int], parked: Sequence[Parked]) -> None:
        """Mark letters of a held topic as sent, and move those that are refused for their own sake.

        Raises:
            LeaseLost: Somebody else leads.
        """
        async with self._connection.transaction():
            await self._fence()
            await self._execute(ParkingSql.resolve_letters, self._ids(sent))
            if parked:
                seqs, *columns = _columns(parked)
                await self._execute(ParkingSql.move_letters, self._ids(seqs), *columns)
                await self._hold(letter for letter in parked if letter.hold)

    async def release_topic(self, topic: str) -> bool:
        """Let a topic go when no letter of it is left; return whether that was so.

        Raises:
            LeaseLost: Somebody else leads.
        """
        self._letters.clear()
        async with self._connection.transaction():
            await self._fence()
            return bool(await self._fetch(ParkingSql.release_topic, topic))

    async def due_keys(self, held_topics: Collection[str], *, every: bool) -> list[HeldKey]:
        """Return held keys that can go on.

        Args:
            held_topics: Topics that cannot be written now.
            every: Look at all held keys, not only at those of which somebody asked for a letter.
        """
        found = await self._fetch(ParkingSql.due_keys, every, list(held_topics), _KEYS)
        return [(row["topic"], row["key"]) for row in found]

    async def key_letters(self, keys: Iterable[HeldKey]) -> list[Row]:
        """Return the letters of held keys that may be sent now, in each key's order.

        They are the first ones, up to one that holds the key and was not asked for.
        """
        rows: list[Row] = []
        size = 0
        for topic, key in keys:
            if len(rows) >= _ROWS or size >= _BYTES:
                break
            letters = await self._fetch(ParkingSql.key_letters, topic, key, _ROWS, _BYTES)
            going = self._rows(going_on(letters))
            rows += going
            size += sum(len(row[3] or b"") for row in going)
        return rows

    async def loose_letters(self, held_topics: Collection[str]) -> list[Row]:
        """Return letters that hold nothing and were asked for."""
        return self._rows(await self._fetch(ParkingSql.loose_letters, list(held_topics), _ROWS, _BYTES))

    async def settle_keys(
        self, keys: Sequence[HeldKey], sent: Collection[int], parked: Sequence[Parked]
    ) -> None:
        """Mark letters as sent or as refused again, and let keys go of which none is left.

        Raises:
            LeaseLost: Somebody else leads.
        """
        refused = [letter for letter in parked if letter.code != "KEY_HELD"]
        async with self._connection.transaction():
            await self._fence()
            await self._execute(ParkingSql.resolve_letters, self._ids(sent))
            if refused:
                seqs, _, codes, messages = _columns(refused)
                await self._execute(ParkingSql.refuse_letters, self._ids(seqs), codes, messages)
            await self._execute(
                ParkingSql.release_keys, [topic for topic, _ in keys], [key for _, key in keys]
            )

    async def known_topics(self) -> list[str]:
        """Return the topics that were met before."""
        return [row["name"] for row in await self._fetch(ParkingSql.load_topics)]

    async def store_topics(
        self, topics: Sequence[tuple[str, bool, int | None, str]], gone: Collection[str]
    ) -> None:
        """Store what Kafka and the settings say about topics.

        Args:
            topics: Name, whether it is compacted, largest batch in bytes, what happens when a row is parked.
            gone: Topics that are no more.
        """
        if topics:
            await self._execute(
                ParkingSql.store_topics, *(list(column) for column in zip(*topics, strict=True))
            )
        if gone:
            await self._execute(ParkingSql.forget_topics, list(gone))

    def _ids(self, seqs: Iterable[int]) -> list[UUID]:
        return [self._letters[seq] for seq in seqs if seq in self._letters]

    def _rows(self, letters: Sequence[Any]) -> list[Row]:
        self._letters.update((letter["seq"], letter["id"]) for letter in letters)
        return [
            (
                letter["seq"],
                letter["topic"],
                None if letter["key"] is None else letter["key"].decode(),
                letter["value"],
                _headers(letter["headers"]),
            )
            for letter in letters
        ]

    async def _fence(self) -> None:
        if not await self._connection.fetchval(Sql.fence, self._outbox, self._epoch, timeout=self._timeout):
            raise LeaseLost

    async def _hold(self, letters: Iterable[Parked]) -> None:
        for scope, topic, key, reason in sorted({_hold_of(letter) for letter in letters}):
            await self._execute(ParkingSql.add_hold, scope, topic, key, reason)
            if reason.startswith("TOPIC_MISSING"):
                await self._execute(ParkingSql.mark_missing, topic)

    async def _execute(self, query: str, *arguments: object) -> None:
        await self._connection.execute(query, *arguments, timeout=self._timeout)

    async def _fetch(self, query: str, *arguments: object) -> list[asyncpg.Record]:
        found: list[asyncpg.Record] = await self._connection.fetch(query, *arguments, timeout=self._timeout)
        return found


def going_on(letters: Iterable[Any]) -> list[Any]:
    """Return the letters of a held key that may be sent: those before the first that holds it and was not asked for.

    Args:
        letters: With code and status, in the key's order.
    """
    found = []
    for letter in letters:
        if letter["status"] != "RETRY_PENDING" and letter["code"] != "KEY_HELD":
            break
        found.append(letter)
    return found


def _hold_of(letter: Parked) -> tuple[str, str, bytes, str]:
    key = letter.topic.encode() if letter.scope == TOPIC_SCOPE else hold_key((letter.key or "").encode())
    return letter.scope, letter.topic, key, f"{letter.code}: {letter.message}"


def _columns(parked: Sequence[Parked]) -> tuple[list[int], list[str], list[str], list[str]]:
    return (
        [letter.seq for letter in parked],
        [letter.scope for letter in parked],
        [letter.code for letter in parked],
        [letter.message for letter in parked],
    )


def _reason(text: str) -> tuple[str, str]:
    code, _, message = text.partition(": ")
    return code, message


def _headers(packed: bytes) -> str:
    """Return headers as the outbox row had them, so that a letter leaves with the row's bytes."""
    return json.dumps(
        {name: None if value is None else value.decode() for name, value in unpack_headers(packed)},
        ensure_ascii=False,
    )
