"""A participant that books trucks, its effects in a ledger, and the commands that a requester sends it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
from milepost import Command, Consumer, Event, Refused, Retry, Transaction
from milepost.consumers.answering import write_reply
from milepost.consumers.publishing import publish_in
from milepost.inbox.intake import Intake
from milepost.schemas.envelope import Record
from milepost.schemas.ids import SystemClock
from milepost.streams.database import Database
from sqlalchemy.ext.asyncio import create_async_engine

from tests.support.inbox import IDS, headers, opened

LEDGER = "CREATE TABLE ledger (n bigserial PRIMARY KEY, act text NOT NULL, truck text NOT NULL)"
NOTE = "INSERT INTO ledger (act, truck) VALUES ($1, $2)"
QUICK = Retry(attempts=2, first=timedelta(milliseconds=1))


class TruckBooked(Event, type="truck.booked", topic="truck-replies", key="truck"):
    truck: str
    plate: str


class TruckCancelled(Event, type="truck.cancelled", topic="truck-replies", key="truck"):
    truck: str


class BookTruck(Command[TruckBooked], type="truck.book", topic="trucks", key="truck"):
    truck: str
    note: str = ""


class CancelTruck(Command[TruckCancelled], type="truck.cancel", topic="trucks", key="truck"):
    truck: str
    note: str = ""


Pause = Callable[[Command[Any], Transaction], Awaitable[None]]


async def no_pause(command: Command[Any], tx: Transaction) -> None:
    """Go on at once."""


@dataclass
class Participant:
    """Answers `BookTruck` and `CancelTruck`.

    Attributes:
        pause: Called after the effect, before the answer.
        calls: Every call of a handler, committed or not.
    """

    pause: Pause = no_pause
    calls: list[str] = field(default_factory=list)

    async def book(self, command: BookTruck, tx: Transaction) -> TruckBooked:
        """Note the booking; a truck named no… is refused afterwards, one named bad… fails."""
        await self._act("do", command.truck, tx)
        await self.pause(command, tx)
        if command.truck.startswith("no"):
            raise Refused("NO_TRUCK", "none is free")
        if command.truck.startswith("bad"):
            raise ValueError("the ledger is torn")
        return TruckBooked(truck=command.truck, plate=f"P-{command.truck}")

    async def cancel(self, command: CancelTruck, tx: Transaction) -> TruckCancelled:
        """Note the cancellation; one with the note late is refused."""
        await self._act("undo", command.truck, tx)
        await self.pause(command, tx)
        if command.note == "late":
            raise Refused("TOO_LATE")
        return TruckCancelled(truck=command.truck)

    async def _act(self, act: str, truck: str, tx: Transaction) -> None:
        self.calls.append(act)
        await tx.connection.execute(NOTE, act, truck)

    def consumer(self, name: str = "trucks", *, barrier: bool = True, retry: Retry = QUICK) -> Consumer:
        """Return its consumer."""
        consumer = Consumer(name, retry=retry, reply=write_reply)
        consumer.answers(BookTruck, TruckBooked)(self.book)
        consumer.answers(CancelTruck, TruckCancelled, undoes=BookTruck if barrier else None)(self.cancel)
        return consumer


@dataclass
class Bench:
    """Participants on a database, handed records as a poll would hand them over.

    Attributes:
        offsets: Next offset by partition.
    """

    database: Database
    offsets: dict[int, int] = field(default_factory=dict)

    def intake(self, consumer: Consumer) -> Intake:
        """Return an intake that really replies."""
        return Intake(consumer, self.database, publish_in, clock=SystemClock())

    def record(
        self,
        command: Command[Any],
        *,
        event_id: UUID | None = None,
        partition: int = 0,
        of: Mapping[str, str] | None = None,
        **more: str,
    ) -> Record:
        """Return the record of a command; `run="r"` becomes the header milepost-run, `ce_x` stays.

        Args:
            of: Run and step of its operation.
        """
        offset = self.offsets.get(partition, 0)
        self.offsets[partition] = offset + 1
        named = {
            name
            if name.startswith("ce_") or name == "traceparent"
            else f"milepost-{name}".replace("_", "-"): text
            for name, text in {**(of or {}), **more}.items()
        }
        found = headers(event_id or IDS.new(), type=command.milepost_spec.type, **named)
        value = command.model_dump_json().encode()
        now = int(SystemClock().now().timestamp() * 1000)
        return Record("trucks", partition, offset, b"k", value, found, now)

    async def ledger(self) -> list[tuple[str, str]]:
        """Return the effects that have committed, in order."""
        rows = await self.database.pool.fetch("SELECT act, truck FROM ledger ORDER BY n")
        return [(row["act"], row["truck"]) for row in rows]

    async def replies(self, run: str | None = None) -> list[Replied]:
        """Return the replies in the outbox, in order; of one run where given."""
        rows = await self.database.pool.fetch("SELECT * FROM milepost.outbox ORDER BY seq")
        found = [Replied.of(row) for row in rows]
        return [reply for reply in found if run is None or reply.headers.get("milepost-run") == run]

    async def letters(self) -> list[asyncpg.Record]:
        """Return the dead letters."""
        return list(await self.database.pool.fetch('SELECT * FROM milepost.dead_letter ORDER BY "offset"'))


@dataclass
class Replied:
    """A reply in the outbox."""

    type: str
    topic: str
    key: str | None
    body: dict[str, Any]
    headers: dict[str, str]

    @classmethod
    def of(cls, row: asyncpg.Record) -> Replied:
        """Read a row."""
        body = json.loads(row["payload"])
        return cls(row["type"], row["topic"], row["aggregateid"], body, json.loads(row["headers"]))

    @property
    def id(self) -> str:
        """CloudEvents id."""
        return self.headers["ce_id"]

    @property
    def outcome(self) -> str:
        """What the header says."""
        return self.headers["milepost-outcome"]


@asynccontextmanager
async def bench(database_url: str, **settings: Any) -> AsyncIterator[Bench]:
    """Give a bench with an empty ledger."""
    async with opened(database_url, **settings) as database:
        await database.pool.execute(LEDGER)
        yield Bench(database)


@asynccontextmanager
async def with_sessions(at: Bench) -> AsyncIterator[Database]:
    """Give the same database through SQLAlchemy."""
    engine = create_async_engine(at.database.settings.sqlalchemy_url)
    database = Database(at.database.settings, engine=engine)
    await database.open()
    try:
        yield database
    finally:
        await database.close()
        await engine.dispose()


def outcomes(replies: Sequence[Replied]) -> list[str]:
    """Return type and outcome of replies in words that fit a line."""
    return [f"{reply.type} {reply.outcome}" for reply in replies]
