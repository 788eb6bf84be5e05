"""Reading the outbox by the difference of two snapshots, and the log of how far it has been sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast
from uuid import UUID

import asyncpg

from ..schemas.errors import StateError
from .position import PAGE_ROWS, UNKNOWN, Page, Position, Row, Snapshot, parse_snapshot
from .store import Sql

#: Bytes of a page, which the relay holds in memory twice.
PAGE_BYTES = 4_000_000
#: Up to so many rows of late transactions are sorted per page; more are found by walking the numbers.
_FEW = 5000
#: A place in the server's log that is always flushed.
_NOWHERE = "0/0"
#: Positions that are kept behind the newest one.
_KEPT = 100


@dataclass(slots=True)
class _Tick:
    """A tick too large for one page, being read.

    Attributes:
        plain: Whether no late row is mixed in and no page can have more than the bytes allowed.
        until: As in `Page`.
    """

    current: Snapshot
    last_seq: int
    fresh_from: int
    late: tuple[int, ...]
    left: int
    plain: bool
    until: str | None


class Reader:
    """Brings unsent rows in pages, each transaction's when it is first seen to have committed.

    No transaction stays open between two pages.

    Args:
        connection: Used by nobody else meanwhile.
        position: Where to go on.
        timeout: Longest wait for one statement, in seconds.
        own_session: Whether settings made on the connection stay until it is given back, as behind a transaction-mode
            pooler they do not; a read then is one round trip to the database instead of three.
    """

    def __init__(
        self,
        connection: asyncpg.Connection[Any],
        position: Position,
        *,
        timeout: float,
        own_session: bool = False,
        page_rows: int = PAGE_ROWS,
        page_bytes: int = PAGE_BYTES,
    ) -> None:
        self._connection = connection
        self._previous = position.previous
        self._resumed = None if position.settled else position
        self._tick: _Tick | None = None
        self._timeout = timeout
        self._own_session = own_session
        self._is_set = False
        self._rows = page_rows
        self._bytes = page_bytes

    async def read(self) -> Page | Position:
        """Return the next page, or, when there is nothing, the position that this shows."""
        if self._resumed is not None:
            resumed, self._resumed = self._resumed, None
            await self._open_tick(resumed.current, resumed.last_seq, UNKNOWN)
        if self._tick is None:
            (_, fits, until, _, snapshot), *rows = await self._fetch(
                Sql.read_new, *self._since(), self._rows, self._bytes
            )
            current = parse_snapshot(snapshot)
            if fits == "true":
                return self._small(current, rows, until)
            await self._open_tick(current, 0, until)
        return await self._next_page()

    def _since(self) -> tuple[int, list[int]]:
        return self._previous[1], list(self._previous[2])

    def _small(self, current: Snapshot, rows: Sequence[Row], until: str | None) -> Page | Position:
        before = Position(self._previous, current)
        self._previous = current
        after = Position(current, current)
        return Page(rows, before, after, 0, until) if rows else after

    async def _open_tick(self, current: Snapshot, last_seq: int, until: str | None) -> None:
        xmax, running = self._since()
        found: Any = await self._fetch(Sql.find_floors, xmax, current[1], running, last_seq, current)
        fresh, fresh_floor, late, late_floor, largest = found[0]
        few = late <= _FEW
        if not few:
            fresh_floor = min(floor for floor in (fresh_floor, late_floor) if floor is not None)
        self._tick = _Tick(
            current=current,
            last_seq=last_seq,
            fresh_from=last_seq if fresh_floor is None else max(last_seq, fresh_floor - 1),
            late=tuple(running) if few else (),
            left=fresh + late,
            plain=(late == 0 or not few) and largest * self._rows <= self._bytes,
            until=until,
        )

    async def _next_page(self) -> Page | Position:
        tick = self._tick
        if tick is None or not tick.left:
            return self._close_tick()
        rows = await self._page_of(tick)
        if not rows:
            return self._close_tick()
        before = Position(self._previous, tick.current, tick.last_seq)
        tick.last_seq = rows[-1][0]
        tick.left -= len(rows)
        after = Position(self._previous, tick.current, tick.last_seq)
        if not tick.left:
            after = self._close_tick()
        return Page(rows, before, after, tick.left, tick.until)

    async def _page_of(self, tick: _Tick) -> list[Row]:
        floor, count = max(tick.fresh_from, tick.last_seq), min(self._rows, tick.left)
        if tick.plain:
            return await self._fetch(Sql.read_plain, floor, self._previous, tick.current, count)
        late, bytes_allowed = list(tick.late), self._bytes
        return await self._fetch(
            Sql.read_page, floor, self._previous, tick.current, late, tick.last_seq, count, bytes_allowed
        )

    def _close_tick(self) -> Position:
        if self._tick is not None:
            self._previous, self._tick = self._tick.current, None
        return Position(self._previous, self._previous)

    async def _fetch(self, query: str, *arguments: object) -> list[Row]:
        if self._own_session and not self._is_set:
            await self._connection.execute(Sql.force_session, timeout=self._timeout)
            self._is_set = True
        try:
            if not self._own_session:
                await self._connection.execute(Sql.begin_read, timeout=self._timeout)
            # A record unpacks like a tuple; turning each into one would cost a twentieth of the relay's time.
            return cast("list[Row]", await self._connection.fetch(query, *arguments, timeout=self._timeout))
        finally:
            await self.end()

    async def end(self) -> None:
        """Leave the connection without a transaction, whatever a cancelled read was in the middle of."""
        if self._connection.is_in_transaction():
            await self._connection.execute(Sql.end_read, timeout=self._timeout)


class PositionLog:
    """The insert-only log of positions, as one leader writes it.

    Rows of an older epoch that are inserted later are never looked at again: the newest epoch comes first.

    Args:
        connection: Used by nobody else meanwhile.
        epoch: The leader's.
    """

    def __init__(
        self, connection: asyncpg.Connection[Any], outbox: str, epoch: int, *, timeout: float
    ) -> None:
        self._connection = connection
        self._outbox = outbox
        self._epoch = epoch
        self._timeout = timeout
        self._n = 0
        self._trimmed = (0, 0)
        self._system = 0

    async def load(self) -> Position:
        """Return the newest position, or one before everything.

        Raises:
            StateError: MP411 when it was written by another database cluster: this one is a copy, in which
                old transaction numbers mean nothing.
        """
        self._system = await self._connection.fetchval(Sql.system_identifier, timeout=self._timeout)
        found = await self._connection.fetchrow(Sql.load_position, self._outbox, timeout=self._timeout)
        if found is None:
            return Position()
        if found["system_identifier"] != self._system:
            raise StateError(
                "MP411",
                f"relay: the outbox was last sent by the database cluster {found['system_identifier']}, and "
                f"this one is {self._system}: a restored dump or an upgraded copy, in which the stored "
                "transaction numbers mean nothing. Nothing is sent, because rows could be lost or sent again "
                "in the original's name. Point MILEPOST_DATABASE_URL at the original database; or, when this one "
                "takes its place, run `milepost outbox rebaseline`.",
            )
        return Position(found["previous"], found["current"], found["last_seq"])

    async def write(self, position: Position, until: str | None = UNKNOWN) -> None:
        """Store a position.

        When this returns, all that lies before `until` survives a crash of the server, the position itself if that had
        to be waited for; else a crash within the next 0.6 seconds may take it back (three times wal_writer_delay), and
        what was sent in them is sent again.

        Args:
            until: As in `Page`; None when nothing has to survive.

        Source: https://www.postgresql.org/docs/current/wal-async-commit.html
        """
        self._n += 1
        await self._connection.execute(
            Sql.write_position,
            self._outbox,
            self._epoch,
            self._n,
            position.previous,
            position.current,
            position.last_seq,
            self._system,
            until or _NOWHERE,
            timeout=self._timeout,
        )

    async def trim(self) -> None:
        """Delete old positions but for the last hundred of this epoch."""
        until = (self._epoch, self._n - _KEPT)
        await self._connection.execute(
            Sql.trim_positions, self._outbox, *until, *self._trimmed, timeout=self._timeout
        )
        self._trimmed = max(until, self._trimmed)


@dataclass(frozen=True, slots=True)
class OutboxState:
    """How an outbox stands, for people.

    Attributes:
        owner: The leading relay, None when nobody leads.
        lag: Rows not yet sent, counted up to 100,000.
        oldest_seconds: Age of the oldest of them; None when there is none.
    """

    owner: UUID | None
    epoch: int
    lag: int
    oldest_seconds: float | None


async def outbox_state(connection: asyncpg.Connection[Any], outbox: str = "outbox") -> OutboxState:
    """Return who relays an outbox and what is still unsent, by the stored position."""
    async with connection.transaction(readonly=True):
        await connection.execute(Sql.force_plan)
        lease = await connection.fetchrow(Sql.lease_state, outbox)
        found = await connection.fetchrow(Sql.load_position, outbox)
        position = (
            Position() if found is None else Position(found["previous"], found["current"], found["last_seq"])
        )
        (unsent,) = await connection.fetch(Sql.oldest_unsent, *_unsent_since(position))
    if lease is None:
        return OutboxState(None, 0, unsent["lag"], unsent["oldest_seconds"])
    owner = lease["owner"] if lease["held"] else None
    return OutboxState(owner, lease["epoch"], unsent["lag"], unsent["oldest_seconds"])


def _unsent_since(position: Position) -> tuple[int, list[int], Snapshot, int, int]:
    previous, current = position.previous, position.current
    return previous[1], list(previous[2]), current, position.last_seq, 100_000
