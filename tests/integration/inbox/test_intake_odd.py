"""Records that are no event of ours, or none that may be applied any more."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from milepost.inbox.intake import Intake
from milepost.schemas.ids import ManualClock, SystemClock
from milepost.schemas.packing import unpack_headers
from milepost.schemas.settings import Settings
from milepost.streams.database import Database
from milepost.streams.reader_start import StartAgain

from tests.support.inbox import (
    IDS,
    Effects,
    consumer_of,
    headers,
    intake_of,
    nothing_published,
    opened,
    record,
)

LETTERS = 'SELECT * FROM milepost.dead_letter ORDER BY "offset"'
POSITION = "SELECT next_offset FROM milepost.consumer_position"


async def test_poison_is_parked_once_with_its_bytes(database: Database, effects: Effects) -> None:
    event_id = IDS.new()
    odd: list[tuple[str, bytes | None]] = [
        ("ce_type", b"test.paid"),
        ("ce_id", str(event_id).encode()),
        ("x", b"\xc3\x28\x00"),
        ("none", None),
        ("x", b"again"),
        ("na\x00me", b"v"),
    ]
    poison = [
        replace(record(0), value=b"{", headers=odd, key=b"\x00\xff"),
        replace(record(1), value=b"", headers=headers(IDS.new())),
        replace(record(2), value=None, headers=headers(IDS.new())),
        replace(record(3), value=b'{"order": 1}', headers=headers(IDS.new())),
        replace(record(4), value=b'{"order": "a', headers=headers(IDS.new())),
        replace(record(5), value=b"plain", headers=[]),
        replace(record(6), value=b"{}", headers=[("ce_type", b"\xc3\x28")]),
        replace(record(7), headers=[*headers(IDS.new()), ("x", b"y" * 1_000_000)]),
    ]
    intake = intake_of(consumer_of("c", "t", effects.apply), database)
    good = record(8)
    for _ in range(2):
        await intake.handle([*poison, good])
    assert await effects.orders() == ["o-7", "o-8"], "a large header is no poison"
    letters = await effects.rows(LETTERS)
    assert [(row["offset"], row["code"]) for row in letters] == [
        (0, "INVALID_BODY"),
        (1, "INVALID_BODY"),
        (2, "NO_VALUE"),
        (3, "INVALID_BODY"),
        (4, "INVALID_BODY"),
        (5, "NO_TYPE"),
        (6, "BAD_HEADER"),
    ]
    assert [row["value"] for row in letters] == [found.value for found in poison[:7]]
    assert letters[0]["key"] == b"\x00\xff"
    assert unpack_headers(letters[0]["headers"]) == odd
    assert all(row["sent_at"] is not None and row["scope"] == "consumer:c" for row in letters)
    assert await effects.value(POSITION) == 9


async def test_structured_poison_blocks_nobody(database: Database, effects: Effects) -> None:
    head = b'{"type":"test.paid","source":"s","id":"1"'
    bodies = [
        head + b',"data":{"order":"x","n":' + b"9" * 5000 + b"}}",
        head + b',"data":{"order":"\\ud800"}}',
        b'{"type":"test.paid","source":"\\ud800","id":"1","data":{"order":"x"}}',
        b'{"type":"test.paid","source":"s","id":"\\u0000","data":{"order":"x"}}',
        head + b',"correlationid":"\\udfff","data":{"order":"x"}}',
        head + b',"data":' + b"[" * 900 + b"]" * 900 + b"}",
    ]
    structured = [("content-type", b"application/cloudevents+json")]
    records = [replace(record(n), value=body, headers=structured) for n, body in enumerate(bodies)]
    await intake_of(consumer_of("c", "t", effects.apply), database).handle([*records, record(6)])
    assert await effects.orders() == ["o-6"]
    assert [row["offset"] for row in await effects.rows(LETTERS)] == [0, 1, 2, 3, 4, 5]


async def test_an_unknown_type_is_passed_by_or_parked(database: Database, effects: Effects) -> None:
    other = replace(record(0), headers=headers(IDS.new(), type="test.other"))
    passing = intake_of(consumer_of("skips", "t", effects.apply), database)
    await passing.handle([other])
    parking = intake_of(consumer_of("parks", "t", effects.apply, unknown="dead_letter"), database)
    await parking.handle([other])
    assert [(row["scope"], row["code"]) for row in await effects.rows(LETTERS)] == [
        ("consumer:parks", "UNKNOWN_TYPE")
    ]
    assert await effects.value(
        "SELECT array_agg(consumer ORDER BY consumer) FROM milepost.consumer_position"
    ) == [
        "parks",
        "skips",
    ]


async def test_an_event_older_than_the_inbox_is_a_letter(database_url: str) -> None:
    sent = int((SystemClock().now() - timedelta(days=8)).timestamp() * 1000)
    applied = record(0, at_ms=sent)
    async with opened(database_url, keep_inbox=timedelta(days=30)) as database:
        effects = Effects(database.pool)
        await intake_of(consumer_of("c", "t", effects.apply), database).handle([applied])
        given: dict[str, Any] = {"database_url": database_url, "keep_inbox": timedelta(days=7)}
        forgetful = Database(Settings(**given), max_size=2)
        await forgetful.open()
        try:
            intake = intake_of(consumer_of("c", "t", effects.apply), forgetful)
            await intake.handle([applied, record(1, at_ms=sent)])
        finally:
            await forgetful.close()
        assert await effects.orders() == ["o-0"]
        assert [(row["code"], row["offset"]) for row in await effects.rows(LETTERS)] == [("TOO_OLD", 1)]


@pytest.mark.parametrize("minutes", [-10, 10])
async def test_the_age_of_an_event_follows_the_databases_clock(database_url: str, minutes: int) -> None:
    """A process whose clock is minutes off calls nothing too old that is not, and takes nothing that is."""
    now, keep = SystemClock().now(), timedelta(days=7)
    skewed = ManualClock(now + timedelta(minutes=minutes))
    ages = [keep - timedelta(minutes=5), keep + timedelta(minutes=5)]
    records = [record(n, at_ms=int((now - age).timestamp() * 1000)) for n, age in enumerate(ages)]
    async with opened(database_url, keep_inbox=keep) as database:
        effects = Effects(database.pool)
        await Intake(consumer_of("c", "t", effects.apply), database, nothing_published, clock=skewed).handle(
            records
        )
        assert await effects.orders() == ["o-0"]
        assert [(row["code"], row["offset"]) for row in await effects.rows(LETTERS)] == [("TOO_OLD", 1)]


async def test_a_database_that_went_back_in_time_makes_reading_start_again(
    database: Database, effects: Effects
) -> None:
    """Interleaving 7, without a rebalance: a restored backup, or a standby that was behind, under a running process."""
    intake = intake_of(consumer_of("c", "t", effects.apply), database)
    await intake.handle([record(n) for n in range(4)])
    await database.pool.execute("UPDATE milepost.consumer_position SET next_offset = 2")
    with pytest.raises(StartAgain):
        await intake.handle([record(4)])
    assert await effects.orders() == [f"o-{n}" for n in range(4)], "nothing was applied past the gap"
    assert await intake.positions([("t", 0)]) == {("t", 0): 2}
    await intake.handle([record(n, event_id=IDS.new()) for n in range(2, 5)])
    assert (await effects.orders())[-1] == "o-4"


async def test_events_without_an_id_are_counted_and_handled_by_place(
    database: Database, effects: Effects
) -> None:
    nameless = [("ce_type", b"test.paid")]
    records = [
        replace(record(n), headers=nameless, value=json.dumps({"order": f"o-{n}"}).encode()) for n in range(2)
    ]
    intake = intake_of(consumer_of("c", "t", effects.apply), database)
    await intake.handle(records)
    await intake.handle(records)
    assert await effects.orders() == ["o-0", "o-1"]
    assert intake.counts.unidentified == 4
