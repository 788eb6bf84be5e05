"""Letters at the edges of a redrive: trouble underneath, killed processes, other identities, encrypted words."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import asyncpg
import pytest
from milepost.consumers.retention import Retention
from milepost.inbox.consumer import Consumer
from milepost.outbox.model import event_row
from milepost.schemas.aesgcm import AesGcm
from milepost.schemas.errors import StateError
from milepost.schemas.events import Event
from milepost.schemas.ids import SystemClock
from milepost.schemas.settings import Settings
from milepost.schemas.transaction import Transaction
from milepost.streams.database import Database
from milepost.streams.lifecycle import Stop
from pydantic import PostgresDsn

from tests.support.inbox import (
    IDS,
    Effects,
    Paid,
    consumer_of,
    headers,
    intake_of,
    record,
)
from tests.support.letters import (
    ONCE,
    Broken,
    drained,
    keyed,
    redrive,
    redriver_of,
    states,
)

AUDIT = "SELECT actor, act, reason, before->>'status', after->>'status' FROM milepost.audit ORDER BY id"
FAILURES = "SELECT attempts, code, message FROM milepost.letter_failure ORDER BY attempts"
LETTER = "SELECT * FROM milepost.dead_letter WHERE n = $1"
INBOX = "SELECT outcome FROM milepost.inbox"


@pytest.fixture
def broken(effects: Effects) -> Broken:
    return Broken(effects)


@pytest.fixture
def consumer(broken: Broken) -> Consumer:
    return consumer_of("c", "t", broken.apply, retry=ONCE)


async def test_trouble_underneath_leaves_the_letter_asked_for(
    database: Database, broken: Broken, effects: Effects
) -> None:
    troubles: list[Exception] = [asyncpg.DeadlockDetectedError("x"), asyncpg.AdminShutdownError("y")]

    async def handle(event: Paid, tx: Transaction) -> None:
        await broken.apply(event, tx)
        if troubles:
            raise troubles.pop(0)

    broken.orders = {"o-0"}
    consumer = consumer_of("c", "t", handle, retry=ONCE)
    await intake_of(consumer, database).handle([record(0)])
    broken.orders = set()
    redriver = redriver_of(consumer, database)
    await redrive(database, 1)
    for _ in range(2):
        with pytest.raises(asyncpg.PostgresError):
            await redriver.once()
        assert await states(database) == [("RETRY_PENDING", "HANDLER_FAILED")]
    await drained(redriver)
    assert await effects.orders() == ["o-0"]
    assert await effects.value("SELECT attempts FROM milepost.dead_letter") == 1


async def test_a_letter_that_keeps_meeting_trouble_is_opened_again(
    database: Database, effects: Effects
) -> None:
    async def handle(event: Paid, tx: Transaction) -> None:
        if tx.envelope.delivery > 1:
            raise asyncpg.DeadlockDetectedError("every time")
        raise ValueError("first")

    consumer = consumer_of("c", "t", handle, retry=ONCE)
    await intake_of(consumer, database).handle([record(0)])
    await redrive(database, 1)
    redriver = redriver_of(consumer, database)
    for _ in range(4):
        with pytest.raises(asyncpg.DeadlockDetectedError):
            await redriver.once()
    await redriver.once()
    assert await states(database) == [("OPEN", "HANDLER_FAILED")]
    assert "every time" in await effects.value("SELECT message FROM milepost.dead_letter")


async def test_a_redrive_that_kills_its_process_is_given_up_in_the_end(
    database: Database, broken: Broken, effects: Effects
) -> None:
    class Died(BaseException):
        pass

    async def handle(event: Paid, tx: Transaction) -> None:
        await broken.apply(event, tx)
        if not broken.orders:
            raise Died

    broken.orders = {"o-0"}
    consumer = consumer_of("c", "t", handle, retry=ONCE)
    await intake_of(consumer, database).handle([record(0)])
    broken.orders = set()
    await redrive(database, 1)
    for _ in range(3):
        with pytest.raises(Died):
            await redriver_of(consumer, database).once()
    await drained(redriver_of(consumer, database))
    assert await states(database) == [("OPEN", "PROCESS_DIED")]
    assert await effects.orders() == []
    assert [row["code"] for row in await effects.rows(FAILURES)] == ["HANDLER_FAILED"]


async def test_a_handler_that_ends_its_transaction_is_not_taken_for_done(
    database: Database, broken: Broken, effects: Effects
) -> None:
    async def handle(event: Paid, tx: Transaction) -> None:
        await broken.apply(event, tx)
        await tx.connection.execute("COMMIT")

    broken.orders = {"o-0"}
    consumer = consumer_of("c", "t", handle, retry=ONCE)
    await intake_of(consumer, database).handle([record(0)])
    broken.orders = set()
    await redrive(database, 1)
    await drained(redriver_of(consumer, database))
    assert await states(database) == [("OPEN", "HANDLER_FAILED")]
    assert "MP332" in await effects.value("SELECT message FROM milepost.dead_letter")
    assert await effects.value(INBOX) == "PARKED"


async def test_a_stop_lets_the_handler_finish_or_calls_the_try_off(
    database: Database, broken: Broken, effects: Effects
) -> None:
    entered, gate = asyncio.Event(), asyncio.Event()

    async def handle(event: Paid, tx: Transaction) -> None:
        await broken.apply(event, tx)
        entered.set()
        await gate.wait()

    broken.orders = {"o-0"}
    consumer = consumer_of("c", "t", handle, retry=ONCE)
    await intake_of(consumer, database).handle([record(0)])
    broken.orders = set()
    await redrive(database, 1)
    for grace in (0.05, 30.0):
        entered.clear()
        stop = Stop(SystemClock(), timedelta(seconds=grace))
        running = asyncio.create_task(redriver_of(consumer, database).run(stop))
        await entered.wait()
        stop.ask()
        if grace > 1:
            gate.set()
        await asyncio.wait_for(running, 20)
        tries = await effects.value("SELECT tries FROM milepost.dead_letter")
        assert (await effects.orders(), tries) == (([], 0) if grace < 1 else (["o-0"], 1))
    assert await states(database) == [("RESOLVED", "HANDLER_FAILED")]


async def test_an_open_letter_outlives_the_inboxs_retention_and_runs_once(
    database_url: str, database: Database, broken: Broken
) -> None:
    """Purged to the day: the applied event's copy is too old to run, the parked one is remembered and runs once."""
    three_days_ago = int((SystemClock().now() - timedelta(days=3)).timestamp() * 1000)
    broken.orders = {"o-1"}
    records = [record(n, at_ms=three_days_ago) for n in range(2)]
    consumer = consumer_of("c", "t", broken.apply, retry=ONCE)
    await intake_of(consumer, database).handle(records)
    await database.pool.execute("UPDATE milepost.inbox SET at = at - interval '9 days'")
    short = Database(Settings(database_url=PostgresDsn(database_url), keep_inbox=timedelta(days=1)))
    await short.open()
    try:
        await Retention(short).tidy(Stop(SystemClock(), timedelta(seconds=1)))
        assert [row["outcome"] for row in await broken.effects.rows(INBOX)] == ["PARKED"]
        broken.orders = set()
        await intake_of(consumer, short).handle(records)
        assert await broken.effects.orders() == ["o-0"], "outside the window a late copy is not applied"
        await redrive(short, 1)
        await drained(redriver_of(consumer, short))
        assert await broken.effects.orders() == ["o-0", "o-1"]
        await intake_of(consumer, short).handle(records)
    finally:
        await short.close()
    assert await broken.effects.orders() == ["o-0", "o-1"]
    assert await states(database) == [("RESOLVED", "HANDLER_FAILED"), ("OPEN", "TOO_OLD")]


async def test_a_letter_whose_inbox_row_is_gone_is_flagged_and_not_applied(
    database: Database, broken: Broken, consumer: Consumer
) -> None:
    broken.orders = {"o-0"}
    await intake_of(consumer, database).handle([record(0)])
    broken.orders = set()
    await database.pool.execute("DELETE FROM milepost.inbox")
    await redrive(database, 1)
    await drained(redriver_of(consumer, database))
    assert await broken.effects.orders() == []
    assert await states(database) == [("OPEN", "INBOX_ROW_GONE")]
    with pytest.raises(StateError, match="MP441"):
        await redrive(database, 1)


async def test_the_same_id_of_another_source_or_tenant_is_another_event(
    database: Database, broken: Broken, consumer: Consumer
) -> None:
    """An id that is unique by itself (UUID version 7) says the same whoever sends it; any other counts per sender."""
    names = [{}, {"ce_tenant": "b"}, {"ce_source": "/other"}, {}]
    records = [
        replace(keyed(n, b"a", body={"order": f"o-{n}"}), headers=headers("7", **more))
        for n, more in enumerate(names)
    ]
    await intake_of(consumer, database).handle(records)
    assert await broken.effects.orders() == ["o-0", "o-1", "o-2"]
    assert await states(database) == [("OPEN", "EVENT_ID_REUSED")]


async def test_the_words_of_an_encrypted_event_go_into_no_letter(
    database: Database, effects: Effects
) -> None:
    """It fails again, and the message of its handler, which quotes it, stays out."""

    class Hidden(
        Event, type="test.hidden", version=1, topic="t", key="order", codec=AesGcm({"k": b"k" * 32})
    ):
        order: str

    async def handle(event: Hidden, tx: Transaction) -> None:
        raise ValueError(f"{event.order} is nobody's business")

    consumer = Consumer("c", retry=ONCE)
    consumer.on(Hidden)(handle)
    row = event_row(Hidden(order="secret-7"), ids=IDS, clock=SystemClock())
    texts = [(name, text.encode()) for name, text in row.headers.items()]
    raw = replace(record(0), value=row.payload, headers=texts)
    await intake_of(consumer, database).handle([raw])
    await redrive(database, 1)
    await drained(redriver_of(consumer, database))
    (letter,) = await effects.rows(LETTER, 1)
    assert (letter["status"], letter["attempts"]) == ("OPEN", 2)
    everything = [*letter.values(), *[v for row in await effects.rows(FAILURES) for v in row.values()]]
    audits = [v for row in await effects.rows(AUDIT) for v in row.values()]
    assert not any("secret-7" in str(value) or b"secret-7" in _bytes(value) for value in everything + audits)


def _bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else b""
