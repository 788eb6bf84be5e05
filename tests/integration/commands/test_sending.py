"""A command can be sent in every transaction that an event can be published in."""

from __future__ import annotations

import json

import pytest
from milepost import Command, Event, UsageError, send

from tests.support.outbox import connected
from tests.support.publishers import WAYS


class Booked(Event, type="test.booked", topic="replies"):
    truck: str


class Book(Command[Booked], type="test.book", topic="commands", key="truck"):
    truck: str


@pytest.mark.parametrize("way", ["asyncpg", "session-asyncpg", "session-psycopg", "psycopg"])
async def test_a_command_leaves_with_its_transaction(database_url: str, way: str) -> None:
    async with WAYS[way](database_url) as unit:
        sent = await send(unit.tx, Book(truck="t-1"), run="r-1", step="book")
    with pytest.raises(ZeroDivisionError):
        async with WAYS[way](database_url) as unit:
            await send(unit.tx, Book(truck="t-2"))
            raise ZeroDivisionError
    async with connected(database_url) as (connection,):
        (row,) = await connection.fetch("SELECT id, topic, aggregateid, headers FROM milepost.outbox")
        assert (row["id"], row["topic"], row["aggregateid"]) == (sent, "commands", "t-1")
        assert json.loads(row["headers"])["milepost-reply-to"] == "replies"


async def test_a_blocking_transaction_is_refused(database_url: str) -> None:
    async with WAYS["psycopg-sync"](database_url) as unit:
        with pytest.raises(UsageError, match="MP349"):
            await send(unit.tx, Book(truck="t-1"))
