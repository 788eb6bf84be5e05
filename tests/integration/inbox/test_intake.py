"""Effects once, whatever comes twice, fails, or dies in between: the intake against a real database."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import asyncpg
import pytest
from milepost.inbox.intake import Intake
from milepost.schemas.ids import ManualClock, SystemClock
from milepost.schemas.options import Retry
from milepost.schemas.packing import unpack_headers
from milepost.schemas.settings import Settings
from milepost.schemas.transaction import Transaction
from milepost.streams.database import Database
from milepost.streams.reader_start import StartAgain
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from tests.support.inbox import (
    IDS,
    Effects,
    Paid,
    consumer_of,
    headers,
    intake_of,
    nothing_published,
    opened,
    record,
)
from tests.support.waiting import until

QUICK = Retry(attempts=3, first=timedelta(milliseconds=1))
INBOX = "SELECT outcome, count(*)::int AS n FROM milepost.inbox GROUP BY outcome ORDER BY outcome"
LETTERS = 'SELECT * FROM milepost.dead_letter ORDER BY "offset"'
POSITION = "SELECT next_offset FROM milepost.consumer_position"
ATTEMPTS = "SELECT count(*) FROM milepost.inbox_attempt WHERE attempts > 0"


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    async with opened(database_url) as database:
        yield database


@pytest.fixture
def effects(database: Database) -> Effects:
    return Effects(database.pool)


async def test_a_batch_is_applied_once_with_duplicates_inside_and_across(
    database: Database, effects: Effects
) -> None:
    intake = intake_of(consumer_of("c", "t", effects.apply), database)
    ids = [IDS.new() for _ in range(4)]
    first = [record(n, event_id=ids[n], body={"order": f"o-{n}"}) for n in range(3)]
    again = replace(first[1], offset=3)
    await intake.handle([*first, again])
    await intake.handle([*first, again, record(4, event_id=ids[3], body={"order": "o-3"})])
    assert await effects.orders() == ["o-0", "o-1", "o-2", "o-3"]
    assert effects.runs == ["o-0", "o-1", "o-2", "o-3"]
    assert await effects.value(POSITION) == 5
    assert (intake.counts.applied, intake.counts.duplicates) == (4, 5)


async def test_handlers_run_in_offset_order_although_ids_are_sorted(
    database: Database, effects: Effects
) -> None:
    intake = intake_of(consumer_of("c", "t", effects.apply), database)
    ids = sorted((IDS.new() for _ in range(20)), reverse=True)
    await intake.handle([record(n, event_id=event_id) for n, event_id in enumerate(ids)])
    assert await effects.orders() == [f"o-{n}" for n in range(20)]


async def test_another_body_under_a_known_id_is_a_letter_not_an_effect(
    database: Database, effects: Effects
) -> None:
    intake = intake_of(consumer_of("c", "t", effects.apply), database)
    event_id = IDS.new()
    same = record(1, event_id=event_id, body={"amount": 1, "order": "o"})
    other = record(2, event_id=event_id, body={"order": "o", "amount": 2})
    await intake.handle([record(0, event_id=event_id, body={"order": "o", "amount": 1})])
    await intake.handle([same, other])
    await intake.handle([same, other])
    assert await effects.orders() == ["o"]
    (letter,) = await effects.rows(LETTERS)
    assert (letter["code"], letter["offset"], letter["value"]) == ("EVENT_ID_REUSED", 2, other.value)
    assert [tuple(row) for row in await effects.rows(INBOX)] == [("APPLIED", 1)]


async def test_two_owners_of_a_partition_at_once_apply_each_event_once(
    database: Database, effects: Effects
) -> None:
    gate = asyncio.Event()

    async def slow(event: Paid, tx: Transaction) -> None:
        await effects.apply(event, tx)
        if event.order == "o-0":
            await gate.wait()

    one, two = (intake_of(consumer_of("c", "t", slow), database) for _ in range(2))
    records = [record(n) for n in range(5)]
    first = asyncio.create_task(one.handle(records))
    await until(lambda: effects.runs == ["o-0"])
    second = asyncio.create_task(two.handle(records))
    await until(lambda: effects.value("SELECT count(*) > 0 FROM pg_locks WHERE NOT granted"), what="a waiter")
    gate.set()
    await asyncio.gather(first, second)
    assert await effects.orders() == [f"o-{n}" for n in range(5)]


async def test_batches_that_share_ids_in_other_orders_do_not_deadlock(
    database: Database, effects: Effects
) -> None:
    intakes = [intake_of(consumer_of("c", "t", effects.apply), database) for _ in range(4)]
    records = [record(n) for n in range(40)]
    for _ in range(5):
        await asyncio.gather(*(intake.handle(records) for intake in intakes))
    assert sorted(await effects.orders()) == sorted(f"o-{n}" for n in range(40))


@pytest.mark.parametrize("when", ["handler", "commit"])
async def test_a_failing_event_is_parked_and_the_good_ones_are_applied(
    database: Database, effects: Effects, when: str
) -> None:
    await database.pool.execute(
        "CREATE TABLE late (o text, CONSTRAINT no_bad UNIQUE (o) DEFERRABLE INITIALLY DEFERRED)"
    )

    async def handle(event: Paid, tx: Transaction) -> None:
        await effects.apply(event, tx)
        if event.order == "o-2" and when == "handler":
            raise ValueError("no such order\x00")
        if event.order == "o-2":
            await tx.connection.execute("INSERT INTO late VALUES ('x'), ('x')")

    intake = intake_of(consumer_of("c", "t", handle, retry=QUICK), database)
    records = [record(n) for n in range(5)]
    await intake.handle(records)
    assert await effects.orders() == ["o-0", "o-1", "o-3", "o-4"]
    (letter,) = await effects.rows(LETTERS)
    assert (letter["code"], letter["stage"], letter["attempts"]) == ("HANDLER_FAILED", "HANDLE", 3)
    assert letter["value"] == records[2].value and letter["recoverable"]
    assert "ValueError" in letter["message"] or "UniqueViolationError" in letter["message"]
    assert [tuple(row) for row in await effects.rows(INBOX)] == [("APPLIED", 4), ("PARKED", 1)]
    assert await effects.value(POSITION) == 5
    assert await effects.value(ATTEMPTS) == 0


async def test_a_letter_stored_before_the_offset_was_committed_stays_one(
    database: Database, effects: Effects
) -> None:
    """Crash between letter and offset commit: the redelivery neither applies nor parks it again."""
    broken = True

    async def handle(event: Paid, tx: Transaction) -> None:
        await effects.apply(event, tx)
        if broken:
            raise ValueError("not today")

    consumer = consumer_of("c", "t", handle, retry=QUICK)
    records = [record(0)]
    await intake_of(consumer, database).handle(records)
    broken = False
    again = intake_of(consumer, database)
    await again.handle(records)
    assert await effects.orders() == []
    assert [row["status"] for row in await effects.rows(LETTERS)] == ["OPEN"]
    assert again.counts.duplicates == 1


async def test_trouble_underneath_brings_the_whole_batch_again_and_parks_nobody(
    database: Database, effects: Effects
) -> None:
    """Interleaving 14: a deadlock, a lost connection and a failover say nothing about the events."""
    troubles: list[Any] = [
        asyncpg.DeadlockDetectedError("deadlock"),
        asyncpg.AdminShutdownError("failover"),
        "terminate",
    ]

    async def handle(event: Paid, tx: Transaction) -> None:
        await effects.apply(event, tx)
        if event.order == "o-1" and troubles:
            trouble = troubles.pop(0)
            if trouble != "terminate":
                raise trouble
            pid = await tx.connection.fetchval("SELECT pg_backend_pid()")
            await database.pool.execute("SELECT pg_terminate_backend($1)", pid)
            await tx.connection.execute("SELECT 1")

    intake = intake_of(consumer_of("c", "t", handle, retry=Retry(attempts=1)), database)
    records = [record(n) for n in range(3)]
    for _ in range(3):
        with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
            await intake.handle(records)
        assert await effects.orders() == []
        assert await effects.value(POSITION) is None
    await intake.handle(records)
    assert await effects.orders() == ["o-0", "o-1", "o-2"]
    assert await effects.rows(LETTERS) == []


async def test_trouble_underneath_uses_up_no_attempt_of_a_lone_event(
    database: Database, effects: Effects
) -> None:
    outcomes: list[Exception | None] = [
        ValueError("1"),
        ValueError("2"),
        asyncpg.DeadlockDetectedError("x"),
        asyncpg.DeadlockDetectedError("x"),
        None,
    ]

    async def handle(event: Paid, tx: Transaction) -> None:
        await effects.apply(event, tx)
        outcome = outcomes.pop(0)
        if outcome is not None:
            raise outcome

    # The failure in the batch is not a try of the event alone: two tries are left for what follows.
    intake = intake_of(consumer_of("c", "t", handle, retry=replace(QUICK, attempts=2)), database)
    for _ in range(2):
        with pytest.raises(asyncpg.DeadlockDetectedError):
            await intake.handle(RECORD)
    await intake.handle(RECORD)
    assert await effects.orders() == ["o-0"]
    assert await effects.rows(LETTERS) == []


RECORD = [record(0)]


async def test_an_unclean_exit_goes_one_by_one_and_a_killer_is_parked(
    database: Database, effects: Effects
) -> None:
    """A process that dies in a handler leaves what it had begun; the next one counts and parks the killer."""

    class Died(BaseException):
        pass

    alone: list[int] = []

    async def handle(event: Paid, tx: Transaction) -> None:
        await effects.apply(event, tx)
        alone.append(tx.envelope.delivery)
        if event.order == "o-1":
            raise Died

    records = [record(n) for n in range(4)]
    consumer = consumer_of("c", "t", handle, retry=replace(QUICK, attempts=2))
    for _ in range(3):
        intake = intake_of(consumer, database)
        await intake.positions([("t", 0)])
        with pytest.raises(Died):
            await intake.handle(records)
    survivor = intake_of(consumer, database)
    assert await survivor.positions([("t", 0)]) == {("t", 0): 1}
    await survivor.handle(records)
    assert await effects.orders() == ["o-0", "o-2", "o-3"]
    (letter,) = await effects.rows(LETTERS)
    assert (letter["code"], letter["attempts"], letter["offset"]) == ("PROCESS_DIED", 2, 1)
    assert effects.runs.count("o-1") == 3, "once in the batch, twice alone"
    assert await effects.value(POSITION) == 4


async def test_a_clean_batch_leaves_nothing_suspect(database: Database, effects: Effects) -> None:
    consumer = consumer_of("c", "t", effects.apply)
    await intake_of(consumer, database).handle([record(n) for n in range(3)])
    later = intake_of(consumer, database)
    await later.positions([("t", 0)])
    assert later._suspects == {("t", 0): -1}


@pytest.mark.parametrize("alone", [False, True])
async def test_a_cancelled_handler_is_rolled_back_and_counts_as_nothing(
    database: Database, effects: Effects, alone: bool
) -> None:
    started = asyncio.Event()
    hang = True

    async def handle(event: Paid, tx: Transaction) -> None:
        await effects.apply(event, tx)
        if not hang:
            return
        if alone and len(effects.runs) == 1:
            raise ValueError("so that it goes alone")
        started.set()
        await asyncio.Event().wait()

    consumer = consumer_of("c", "t", handle, retry=replace(QUICK, attempts=1))
    task = asyncio.create_task(intake_of(consumer, database).handle([record(0)]))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await effects.orders() == []
    assert await effects.rows(INBOX) == []
    assert await effects.value(ATTEMPTS) == 0
    hang = False
    after = intake_of(consumer, database)
    await after.positions([("t", 0)])
    await after.handle([record(0)])
    assert await effects.orders() == ["o-0"]
    assert await effects.rows(LETTERS) == []


async def test_a_handler_that_is_cancelled_from_inside_has_failed(
    database: Database, effects: Effects
) -> None:
    async def handle(event: Paid, tx: Transaction) -> None:
        if event.order == "o-0":
            raise asyncio.CancelledError
        await effects.apply(event, tx)

    intake = intake_of(consumer_of("c", "t", handle, retry=QUICK), database)
    await intake.handle([record(0), record(1)])
    assert await effects.orders() == ["o-1"]
    assert [row["code"] for row in await effects.rows(LETTERS)] == ["HANDLER_FAILED"]


@pytest.mark.parametrize("how", ["raise", "cancel", "kill connection", "fail at commit"])
async def test_an_id_is_marked_only_together_with_its_effect(
    database: Database, effects: Effects, how: str
) -> None:
    """Scenario 22: the mark never outlives the effect."""
    failing = True
    await database.pool.execute("CREATE TABLE late (o text UNIQUE DEFERRABLE INITIALLY DEFERRED)")

    async def handle(event: Paid, tx: Transaction) -> None:
        await effects.apply(event, tx)
        if not failing:
            return
        if how == "raise":
            raise asyncpg.DeadlockDetectedError("stands for any error underneath")
        if how == "cancel":
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)
        if how == "kill connection":
            pid = await tx.connection.fetchval("SELECT pg_backend_pid()")
            await database.pool.execute("SELECT pg_terminate_backend($1)", pid)
        if how == "fail at commit":
            await tx.connection.execute("INSERT INTO late VALUES ('x'), ('x')")
            raise asyncpg.SerializationError("retried whole")

    consumer = consumer_of("c", "t", handle)
    with pytest.raises((asyncpg.PostgresError, OSError, asyncpg.InterfaceError, asyncio.CancelledError)):
        await asyncio.create_task(intake_of(consumer, database).handle([record(0)]))
    assert (await effects.rows(INBOX), await effects.orders()) == ([], [])
    failing = False
    again = intake_of(consumer, database)
    await again.positions([("t", 0)])
    await again.handle([record(0)])
    assert await effects.orders() == ["o-0"]


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


async def test_consumers_have_inboxes_of_their_own(database: Database, effects: Effects) -> None:
    for name in ("a", "b"):
        await intake_of(consumer_of(name, "t", effects.apply), database).handle(RECORD)
    assert await effects.orders() == ["o-0", "o-0"]


async def test_the_position_never_moves_back(database: Database, effects: Effects) -> None:
    intake = intake_of(consumer_of("c", "t", effects.apply), database)
    records = [record(n) for n in range(4)]
    await intake.handle(records)
    await intake.handle(records[:2])
    assert await intake.positions([("t", 0), ("t", 1)]) == {("t", 0): 4}


async def test_the_handlers_transaction_ends_with_the_handler(database: Database, effects: Effects) -> None:
    kept: list[Transaction] = []

    async def handle(event: Paid, tx: Transaction) -> None:
        kept.append(tx)
        await effects.apply(event, tx)

    await intake_of(consumer_of("c", "t", handle), database).handle([record(0), record(1)])
    assert [tx.closed for tx in kept] == [True, True]
    assert [tx.envelope.offset for tx in kept] == [0, 1]


async def test_a_session_of_the_users_engine_shares_the_transaction(database_url: str) -> None:
    async with opened(database_url) as plain:
        effects = Effects(plain.pool)
        engine = create_async_engine(plain.settings.sqlalchemy_url)
        database = Database(plain.settings, engine=engine)
        await database.open()

        async def handle(event: Paid, tx: Transaction) -> None:
            effects.runs.append(event.order)
            await tx.session.execute(
                text("INSERT INTO effect (event, text) VALUES (:event, :text)"),
                {"event": tx.envelope.id, "text": event.order},
            )
            if event.order == "o-1":
                await tx.session.execute(text("SELECT no_such_column FROM effect"))

        try:
            intake = intake_of(consumer_of("c", "t", handle, retry=QUICK), database)
            await intake.handle([record(n) for n in range(3)])
        finally:
            await database.close()
            await engine.dispose()
        assert await effects.orders() == ["o-0", "o-2"]
        assert [row["code"] for row in await effects.rows(LETTERS)] == ["HANDLER_FAILED"]


async def test_a_handler_that_swallows_a_database_error_is_the_one_that_failed(
    database: Database, effects: Effects
) -> None:
    async def handle(event: Paid, tx: Transaction) -> None:
        await effects.apply(event, tx)
        if event.order == "o-1":
            try:
                await tx.connection.execute("SELECT no_such_column")
            except asyncpg.PostgresError:
                return

    intake = intake_of(consumer_of("c", "t", handle, retry=QUICK), database)
    await intake.handle([record(n) for n in range(3)])
    assert await effects.orders() == ["o-0", "o-2"]
    assert [row["offset"] for row in await effects.rows(LETTERS)] == [1]


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


async def test_retries_wait_between_tries(database: Database, effects: Effects) -> None:
    class Always:
        def uniform(self) -> float:
            return 0.999

    async def handle(event: Paid, tx: Transaction) -> None:
        raise ValueError("always")

    clock = SystemClock()
    retry = Retry(attempts=3, first=timedelta(milliseconds=100))
    intake = Intake(
        consumer_of("c", "t", handle, retry=retry), database, nothing_published, clock=clock, dice=Always()
    )
    began = clock.monotonic()
    await intake.handle([record(0)])
    assert clock.monotonic() - began >= 0.29
