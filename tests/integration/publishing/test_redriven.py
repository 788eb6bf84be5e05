"""Letters that no handler has seen are handled once the class or the keys that they waited for are there."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from milepost import AesGcm, Consumer, Event
from milepost.outbox.model import event_row
from milepost.schemas.ids import SystemClock
from milepost.schemas.transaction import Transaction

from tests.support.inbox import IDS, headers, intake_of, opened, record
from tests.support.letters import drained, redrive, redriver_of, states

KEYS = {"new": b"n" * 32, "old": b"o" * 32}


def consumer_of(event: type[Event], got: list[Any]) -> Consumer:
    async def handle(event: Event, tx: Transaction) -> None:
        got.append(event)

    consumer = Consumer("c")
    consumer.on(event)(handle)
    return consumer


def card(keys: dict[str, bytes]) -> Any:
    class Card(Event, type="test.card", topic="t", codec=AesGcm(keys)):
        number: str

    return Card


def amount(version: int) -> Any:
    class Amount(Event, type="test.amount", version=version, topic="t"):
        cents: int

    if version > 1:

        @Amount.upcast(from_version=1)
        def up(body: dict[str, Any]) -> dict[str, Any]:
            return {"cents": body["euros"] * 100}

    return Amount


async def test_after_the_key_came(database_url: str) -> None:
    row = event_row(card(KEYS)(number="4111"), ids=IDS, clock=SystemClock())
    texts = [(name, text.encode()) for name, text in row.headers.items()]
    got: list[Any] = []
    async with opened(database_url) as database:
        without = consumer_of(card({"old": KEYS["old"]}), got)
        await intake_of(without, database).handle([replace(record(0), value=row.payload, headers=texts)])
        assert await states(database) == [("OPEN", "KEY_UNKNOWN")]
        await redrive(database, 1)
        await drained(redriver_of(without, database))
        assert await states(database) == [("OPEN", "KEY_UNKNOWN")] and got == []
        await redrive(database, 1)
        await drained(redriver_of(consumer_of(card(KEYS), got), database))
        assert await states(database) == [("RESOLVED", "KEY_UNKNOWN")]
    assert [event.number for event in got] == ["4111"]


async def test_after_the_newer_class_was_deployed(database_url: str) -> None:
    found = headers(IDS.new(), type="test.amount", ce_eventversion="2")
    late = replace(record(0), value=json.dumps({"cents": 990}).encode(), headers=found)
    got: list[Any] = []
    async with opened(database_url) as database:
        await intake_of(consumer_of(amount(1), got), database).handle([late])
        assert await states(database) == [("OPEN", "EVENT_TOO_NEW")] and got == []
        await redrive(database, 1)
        await drained(redriver_of(consumer_of(amount(2), got), database))
        assert await states(database) == [("RESOLVED", "EVENT_TOO_NEW")]
    assert [event.cents for event in got] == [990]
