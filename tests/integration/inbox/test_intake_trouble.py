"""Trouble in the middle of a batch: failing handlers, databases that go away, cancelled and killed ones."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import asyncpg
import pytest
from milepost.schemas.options import Retry
from milepost.schemas.transaction import Transaction
from milepost.streams.database import Database

from tests.support.inbox import (
    Effects,
    Paid,
    consumer_of,
    intake_of,
    record,
)

RECORD = [record(0)]
QUICK = Retry(attempts=3, first=timedelta(milliseconds=1))
INBOX = "SELECT outcome, count(*)::int AS n FROM milepost.inbox GROUP BY outcome ORDER BY outcome"
LETTERS = 'SELECT * FROM milepost.dead_letter ORDER BY "offset"'
POSITION = "SELECT next_offset FROM milepost.consumer_position"
ATTEMPTS = "SELECT count(*) FROM milepost.inbox_attempt WHERE attempts > 0"


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
