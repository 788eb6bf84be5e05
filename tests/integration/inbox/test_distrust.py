"""Events whose handlers bring their trouble upon themselves: they are parked, and hold up nobody."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import asyncpg
import pytest
from milepost.inbox.intake import PATIENCE
from milepost.schemas.options import Retry
from milepost.schemas.transaction import Transaction
from milepost.streams.database import Database
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from tests.support.inbox import Effects, Paid, consumer_of, intake_of, record

QUICK = Retry(attempts=2, first=timedelta(0), cap=timedelta(0))
LETTERS = 'SELECT * FROM milepost.dead_letter ORDER BY "offset"'
POSITION = "SELECT next_offset FROM milepost.consumer_position"
EFFECT = text("INSERT INTO effect (event, text) VALUES (:event, :text)")

OWN = {
    "57014": "SET LOCAL statement_timeout = '10ms'; SELECT pg_sleep(5)",
    "55000": "DO $$ BEGIN RAISE 'not yet' USING ERRCODE = '55000'; END $$",
    "XX000": "DO $$ BEGIN RAISE 'bad geometry' USING ERRCODE = 'XX000'; END $$",
}
UNDERNEATH = {
    "55P03": "DO $$ BEGIN RAISE 'locked' USING ERRCODE = '55P03'; END $$",
    "40001": "DO $$ BEGIN RAISE 'again' USING ERRCODE = '40001'; END $$",
    "57P01": "SELECT pg_terminate_backend(pg_backend_pid())",
}


def failing_at(order: str, effects: Effects, sql: str) -> Any:
    async def handle(event: Paid, tx: Transaction) -> None:
        await effects.apply(event, tx)
        if event.order == order:
            await tx.connection.execute(sql)

    return handle


@pytest.mark.parametrize("state", OWN)
async def test_what_a_statement_brings_upon_itself_is_parked_at_once(
    database: Database, effects: Effects, state: str
) -> None:
    intake = intake_of(consumer_of("c", "t", failing_at("o-1", effects, OWN[state]), retry=QUICK), database)
    await intake.handle([record(n) for n in range(3)])
    assert await effects.orders() == ["o-0", "o-2"]
    assert [(row["offset"], row["attempts"]) for row in await effects.rows(LETTERS)] == [(1, 2)]


@pytest.mark.parametrize("state", UNDERNEATH)
async def test_what_looks_like_trouble_underneath_every_time_is_parked_in_the_end(
    database: Database, effects: Effects, state: str
) -> None:
    handle = failing_at("o-1", effects, UNDERNEATH[state])
    intake = intake_of(consumer_of("c", "t", handle, retry=QUICK), database)
    records = [record(n) for n in range(3)]
    for _ in range(PATIENCE):
        with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
            await intake.handle(records)
        assert await effects.rows(LETTERS) == []
    await intake.handle(records)
    assert await effects.orders() == ["o-0", "o-2"]
    assert [(row["offset"], row["attempts"]) for row in await effects.rows(LETTERS)] == [(1, 2)]
    assert await effects.value(POSITION) == 3


async def test_while_the_database_does_not_answer_nobody_is_parked(
    database: Database, effects: Effects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interleaving 14, however long it takes."""
    broken = True

    async def handle(event: Paid, tx: Transaction) -> None:
        await effects.apply(event, tx)
        if broken:
            raise asyncpg.AdminShutdownError("failover")

    async def away(executor: object) -> bool:
        raise asyncpg.CannotConnectNowError("the database system is starting up")

    intake = intake_of(consumer_of("c", "t", handle, retry=Retry(attempts=1)), database)
    monkeypatch.setattr(intake._store, "answers", away)
    records = [record(n) for n in range(3)]
    for _ in range(3 * PATIENCE):
        with pytest.raises(asyncpg.AdminShutdownError):
            await intake.handle(records)
    broken = False
    await intake.handle(records)
    assert await effects.orders() == ["o-0", "o-1", "o-2"]
    assert await effects.rows(LETTERS) == []


async def test_trouble_that_went_away_is_forgotten(database: Database, effects: Effects) -> None:
    troubles = 0

    async def handle(event: Paid, tx: Transaction) -> None:
        nonlocal troubles
        await effects.apply(event, tx)
        if troubles:
            troubles -= 1
            raise asyncpg.DeadlockDetectedError("deadlock")

    intake = intake_of(consumer_of("c", "t", handle, retry=Retry(attempts=1)), database)
    for n in range(3):
        troubles = PATIENCE - 1
        for _ in range(PATIENCE - 1):
            with pytest.raises(asyncpg.DeadlockDetectedError):
                await intake.handle([record(n)])
        await intake.handle([record(n)])
    assert await effects.orders() == ["o-0", "o-1", "o-2"]
    assert await effects.rows(LETTERS) == []


async def write(event: Paid, tx: Transaction) -> None:
    await tx.session.execute(EFFECT, {"event": tx.envelope.id, "text": event.order})


async def commit(tx: Transaction) -> None:
    await tx.session.commit()


async def rollback(tx: Transaction) -> None:
    try:
        await tx.session.execute(text("INSERT INTO taken VALUES (1)"))
    except IntegrityError:
        await tx.session.rollback()


async def close(tx: Transaction) -> None:
    await tx.session.close()


@pytest.mark.parametrize("act", [commit, rollback, close])
@pytest.mark.parametrize("pooled", [True, False])
async def test_a_handler_that_ends_its_session_is_parked_and_the_others_are_applied(
    database: Database, effects: Effects, act: Callable[[Transaction], Awaitable[None]], pooled: bool
) -> None:
    await effects.value("CREATE TABLE taken (i int UNIQUE)")
    await effects.value("INSERT INTO taken VALUES (1)")

    async def handle(event: Paid, tx: Transaction) -> None:
        await write(event, tx)
        if event.order == "o-1":
            await act(tx)

    engine = create_async_engine(
        database.settings.sqlalchemy_url, **({} if pooled else {"poolclass": NullPool})
    )
    sessions = Database(database.settings, engine=engine)
    await sessions.open()
    try:
        intake = intake_of(consumer_of("c", "t", handle, retry=QUICK), sessions)
        await handled(intake, [record(n) for n in range(4)])
    finally:
        await sessions.close()
        await engine.dispose()
    assert await effects.orders() == ["o-0", "o-2", "o-3"]
    (letter,) = await effects.rows(LETTERS)
    assert letter["offset"] == 1 and "MP332" in letter["message"]
    assert await effects.value(POSITION) == 4


async def handled(intake: Any, records: Any) -> None:
    """Bring the same records until they are done, as the reader does."""
    for _ in range(PATIENCE + 1):
        try:
            await intake.handle(records)
        except Exception:
            continue
        return
    pytest.fail("the records were never done")


@pytest.mark.parametrize("statement", ["COMMIT", "ROLLBACK"])
@pytest.mark.parametrize("and_raise", [False, True])
async def test_a_raw_end_takes_no_other_event_with_it(
    database: Database, effects: Effects, statement: str, and_raise: bool
) -> None:
    async def handle(event: Paid, tx: Transaction) -> None:
        await effects.apply(event, tx)
        if event.order == "o-1":
            await tx.connection.execute(statement)
            if and_raise:
                raise ValueError("later in the handler")

    records = [record(0), record(1), record(2), record(3, body={"order": 7})]
    await intake_of(consumer_of("c", "t", handle, retry=QUICK), database).handle(records)
    orders = await effects.orders()
    assert [orders.count(f"o-{n}") for n in (0, 2)] == [1, 1], orders
    letters = await effects.rows(LETTERS)
    assert [row["offset"] for row in letters] == [1, 3], "the one that was unreadable keeps its letter too"
    assert await effects.value(POSITION) == 4
