"""The log names the events that are parked, so that a line leads to the letter, and quotes nothing of them."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
from milepost.schemas.transaction import Transaction

from tests.support.inbox import IDS, Effects, Paid, consumer_of, intake_of, opened, record
from tests.support.letters import ONCE, keyed


async def test_parking_is_logged_once_with_event_place_and_code(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="milepost")
    async with opened(database_url) as database:

        async def refuse(event: Paid, tx: Transaction) -> None:
            raise ValueError("s3cret")

        ids = [IDS.new() for _ in range(3)]
        records = [record(n, event_id=ids[n]) for n in range(3)]
        records[1:] = [replace(one, value=b"s3cret") for one in records[1:]]
        consumer = consumer_of("books", "t", refuse, retry=ONCE)
        for _ in range(2):
            await intake_of(consumer, database).handle(records)
        lines = [line for line in caplog.messages if "parking" in line]
        assert sorted(lines) == sorted(
            [
                f"books: parking event {ids[0]} (t/0 at 0): HANDLER_FAILED",
                f"books: parking event {ids[1]} (t/0 at 1): INVALID_BODY, and 1 more",
            ]
        )
        assert "s3cret" not in "".join(lines)
        rows = await Effects(database.pool).rows("SELECT event_id FROM milepost.dead_letter")
        assert {row["event_id"] for row in rows} == set(ids), "what the line names is found"


async def test_what_waits_behind_a_held_key_is_not_logged(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="milepost")
    async with opened(database_url) as database:

        async def refuse(event: Paid, tx: Transaction) -> None:
            raise ValueError("no")

        consumer = consumer_of("books", "t", refuse, retry=ONCE, hold_key=True)
        intake = intake_of(consumer, database)
        for n in range(3):
            await intake.handle([keyed(n, b"k", topic="t")])
        assert await Effects(database.pool).value("SELECT count(*) FROM milepost.dead_letter") == 3
        assert len([line for line in caplog.messages if "parking" in line]) == 1
