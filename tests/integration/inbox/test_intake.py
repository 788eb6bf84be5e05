"""Effects once, whatever comes twice, fails, or dies in between: the intake against a real database."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import asyncpg
from milepost.inbox.intake import Intake
from milepost.schemas.ids import SystemClock
from milepost.schemas.options import Retry
from milepost.schemas.transaction import Transaction
from milepost.streams.database import Database
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from tests.support.inbox import (
    IDS,
    Effects,
    Paid,
    consumer_of,
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


async def test_a_clean_batch_leaves_nothing_suspect(database: Database, effects: Effects) -> None:
    consumer = consumer_of("c", "t", effects.apply)
    await intake_of(consumer, database).handle([record(n) for n in range(3)])
    later = intake_of(consumer, database)
    await later.positions([("t", 0)])
    assert later._suspects == {("t", 0): -1}


async def test_consumers_have_inboxes_of_their_own(database: Database, effects: Effects) -> None:
    for name in ("a", "b"):
        await intake_of(consumer_of(name, "t", effects.apply), database).handle([record(0)])
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
