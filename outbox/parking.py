"""What cannot be sent: letters, holds, and working a topic's hold off once the topic exists."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import asyncpg

from .encode import KEY_SCOPE, TOPIC_SCOPE, Parked, Routing
from .lease import LeaseLost
from .log import PositionLog
from .position import Position, Row
from .store import Sql

#: Letters of a held topic that are sent together.
DRAIN_ROWS = 1000


class Parking:
    """The relay's letters and holds; every write is fenced by the lease's epoch.

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

    async def load(self, routing: Routing) -> None:
        """Fill what is held, as stored, into the routing."""
        holds = await self._connection.fetch(Sql.load_holds, timeout=self._timeout)
        policy = await self._connection.fetch(Sql.load_policy, timeout=self._timeout)
        routing.held_topics = {
            hold["topic"]: _reason(hold["reason"]) for hold in holds if hold["scope"] == TOPIC_SCOPE
        }
        routing.held_keys = {
            (hold["topic"], hold["key"].decode()) for hold in holds if hold["scope"] == KEY_SCOPE
        }
        routing.holding = frozenset(row["name"] for row in policy)

    async def park(self, parked: Sequence[Parked], position: Position) -> None:
        """Store letters and holds of a page together with the position behind it.

        Raises:
            LeaseLost: Somebody else leads.
        """
        async with self._connection.transaction():
            await self._fence()
            await self._connection.execute(Sql.force_plan)
            await self._connection.execute(Sql.park_rows, *_columns(parked), timeout=self._timeout)
            await self._hold({_hold_of(letter) for letter in parked if letter.hold})
            await self._log.write(position)

    async def hold_topic(self, topic: str, code: str, message: str) -> None:
        """Hold a topic from now on.

        Raises:
            LeaseLost: Somebody else leads.
        """
        async with self._connection.transaction():
            await self._fence()
            await self._hold({(TOPIC_SCOPE, topic, topic, f"{code}: {message}")})

    async def letters(self, topic: str) -> list[Row]:
        """Return the next letters of a held topic, lowest number first."""
        found = await self._connection.fetch(Sql.held_letters, topic, DRAIN_ROWS, timeout=self._timeout)
        return [tuple(row) for row in found]

    async def settle(self, topic: str, sent: Collection[int], parked: Sequence[Parked]) -> None:
        """Mark letters of a held topic as sent, and move those that are refused for their own sake.

        Raises:
            LeaseLost: Somebody else leads.
        """
        async with self._connection.transaction():
            await self._fence()
            await self._connection.execute(Sql.resolve_letters, topic, list(sent), timeout=self._timeout)
            if parked:
                await self._connection.execute(
                    Sql.move_letters, topic, *_columns(parked), timeout=self._timeout
                )
                await self._hold({_hold_of(letter) for letter in parked if letter.hold})

    async def release(self, topic: str) -> bool:
        """Let a topic go when no letter of it is left; return whether that was so.

        Raises:
            LeaseLost: Somebody else leads.
        """
        async with self._connection.transaction():
            await self._fence()
            return bool(await self._connection.fetchval(Sql.release_hold, topic, timeout=self._timeout))

    async def _fence(self) -> None:
        if not await self._connection.fetchval(Sql.fence, self._outbox, self._epoch, timeout=self._timeout):
            raise LeaseLost

    async def _hold(self, holds: set[tuple[str, str, str, str]]) -> None:
        for scope, topic, key, reason in sorted(holds):
            await self._connection.execute(
                Sql.add_hold, scope, topic, key.encode(), reason, timeout=self._timeout
            )


def _hold_of(letter: Parked) -> tuple[str, str, str, str]:
    key = letter.topic if letter.scope == TOPIC_SCOPE else letter.key or ""
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
