"""Letters handled once more: the effect once, every outcome said, whoever dies or asks twice in between."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
from milepost.inbox.consumer import Consumer, PreparedConsumer
from milepost.schemas.envelope import Envelope
from milepost.schemas.errors import StateError
from milepost.schemas.events import Event
from milepost.schemas.ids import SystemClock
from milepost.schemas.options import Retry
from milepost.schemas.settings import Settings
from milepost.schemas.transaction import Transaction
from milepost.streams.database import Database
from milepost.streams.lifecycle import Stop
from pydantic import PostgresDsn
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from tests.support.inbox import (
    IDS,
    Effects,
    Paid,
    consumer_of,
    intake_of,
    record,
)
from tests.support.letters import (
    ONCE,
    Broken,
    drained,
    ignore,
    keyed,
    redrive,
    redriver_of,
    states,
)
from tests.support.waiting import until

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


async def test_a_mended_handler_applies_the_letter_once_and_again_is_a_reported_no_op(
    database: Database, broken: Broken, consumer: Consumer
) -> None:
    """Redriven twice, and then redelivered: one effect, and each request says what became of it."""
    broken.orders = {"o-0"}
    bad = record(0)
    intake, redriver = intake_of(consumer, database), redriver_of(consumer, database)
    await intake.handle([bad])
    assert (await redrive(database, 1)).outcome == "ASKED"
    again = await redrive(database, 1, by="bob")
    assert (again.outcome, "asked for by ann" in again.text) == ("NOOP", True)
    await drained(redriver)
    first = await broken.effects.rows(LETTER, 1)
    assert (first[0]["status"], first[0]["code"], first[0]["attempts"]) == ("OPEN", "HANDLER_FAILED", 2)
    broken.orders = set()
    await redrive(database, 1)
    await drained(redriver)
    assert await broken.effects.orders() == ["o-0"]
    done = await redrive(database, 1)
    assert (done.outcome, done.text[:23]) == ("NOOP", "already RESOLVED by ann")
    assert (await ignore(database, 1)).outcome == "NOOP"
    await drained(redriver)
    await intake.handle([bad])
    assert await broken.effects.orders() == ["o-0"]
    assert await states(database) == [("RESOLVED", "HANDLER_FAILED")]
    assert await broken.effects.value(INBOX) == "APPLIED"
    assert intake.counts.duplicates == 1
    assert (redriver.counts.resolved, redriver.counts.failed) == (1, 1)


async def test_every_failure_and_every_request_is_kept(
    database: Database, broken: Broken, consumer: Consumer
) -> None:
    broken.orders = {"o-0"}
    await intake_of(consumer, database).handle([record(0)])
    redriver = redriver_of(consumer, database)
    for _ in range(2):
        await redrive(database, 1)
        await drained(redriver)
    broken.orders = set()
    await redrive(database, 1)
    await drained(redriver)
    failures = [tuple(row) for row in await broken.effects.rows(FAILURES)]
    assert failures == [(n, "HANDLER_FAILED", "ValueError: o-0 is broken") for n in (1, 2)]
    (letter,) = await broken.effects.rows(LETTER, 1)
    assert letter["attempts"] == 3 and letter["first_failed_at"] < letter["last_failed_at"]
    assert letter["resolved_at"] is not None and letter["resolved_by"] == "ann"
    asked = ("ann", "letter.redrive", "mended", "OPEN", "RETRY_PENDING")
    failed = ("system", "letter.failed", "ValueError: o-0 is broken", "RETRY_PENDING", "OPEN")
    done = ("system", "letter.resolved", "handled once more", "RETRY_PENDING", "RESOLVED")
    rows = [tuple(row) for row in await broken.effects.rows(AUDIT)]
    assert rows == [asked, failed, asked, failed, asked, done]


async def test_an_ignored_letter_is_never_applied(
    database: Database, broken: Broken, consumer: Consumer
) -> None:
    broken.orders = {"o-0"}
    intake = intake_of(consumer, database)
    await intake.handle([record(0)])
    broken.orders = set()
    assert (await ignore(database, 1)).outcome == "IGNORED"
    assert "already IGNORED" in (await redrive(database, 1)).text
    await drained(redriver_of(consumer, database))
    assert await broken.effects.orders() == []
    assert await broken.effects.value("SELECT resolved_by FROM milepost.dead_letter") == "ann"


async def test_letters_of_a_consumer_go_in_order_and_two_redrivers_apply_each_once(
    database: Database, broken: Broken, consumer: Consumer
) -> None:
    orders = [f"o-{n}" for n in range(12)]
    broken.orders = set(orders)
    await intake_of(consumer, database).handle([record(n) for n in range(12)])
    broken.orders = set()
    for n in (*range(7, 13), *range(1, 7)):
        await redrive(database, n)
    two = [redriver_of(consumer, database) for _ in range(2)]
    stop = Stop(SystemClock(), timedelta(seconds=5))
    tasks = [asyncio.create_task(one.run(stop)) for one in two]
    await until(
        lambda: broken.effects.value("SELECT bool_and(status = 'RESOLVED') FROM milepost.dead_letter"),
        within=30,
    )
    stop.ask()
    await asyncio.gather(*tasks)
    assert await broken.effects.orders() == orders
    assert sum(one.counts.resolved for one in two) == 12
    assert all(one.health().ok for one in two)


@pytest.mark.parametrize("body", [{"order": 7}, {"other": 1}])
async def test_a_body_that_the_mended_class_takes_is_applied(
    database: Database, effects: Effects, body: dict[str, object]
) -> None:
    class Wider(Paid, type="test.paid", version=1, topic="t", key="order"):
        order: str | int = "none"  # type: ignore[assignment]

    async def handle(event: Wider, tx: Transaction) -> None:
        await effects.apply(replace_order(event), tx)

    def replace_order(event: Wider) -> Paid:
        return Paid(order=str(event.order))

    await intake_of(consumer_of("c", "t", effects.apply), database).handle([record(0, body=body)])
    assert await states(database) == [("OPEN", "INVALID_BODY")]
    await redrive(database, 1)
    await drained(redriver_of(consumer_of("c", "t", effects.apply), database))
    assert await states(database) == [("OPEN", "INVALID_BODY")], "the old class still refuses it"
    wider = Consumer("c")
    wider.on(Wider)(handle)
    await redrive(database, 1)
    await drained(redriver_of(wider, database))
    assert await states(database) == [("RESOLVED", "INVALID_BODY")]
    assert await effects.orders() == [str(body.get("order", "none"))]


@pytest.mark.parametrize("code", ["BAD_HEADER", "TOO_OLD", "EVENT_ID_REUSED"])
async def test_what_can_never_be_applied_is_refused_with_the_reason(
    database: Database, broken: Broken, consumer: Consumer, code: str
) -> None:
    event_id = IDS.new()
    good = record(0, event_id=event_id, body={"order": "o"})
    letters = {
        "BAD_HEADER": replace(record(1), headers=[("ce_type", b"\xff")]),
        "TOO_OLD": record(1, at_ms=1_000_000),
        "EVENT_ID_REUSED": record(1, event_id=event_id, body={"order": "other"}),
    }
    await intake_of(consumer, database).handle([good, letters[code]])
    with pytest.raises(StateError, match=f"MP441 letter 1 .{code}. cannot be redriven") as raised:
        await redrive(database, 1)
    assert "ignore this letter" in raised.value.text
    assert await states(database) == [("OPEN", code)]
    assert await broken.effects.value("SELECT count(*) FROM milepost.audit") == 0
    assert (await ignore(database, 1)).outcome == "IGNORED"
    assert await broken.effects.orders() == ["o"]


async def test_a_letter_that_does_not_exist_is_named(database: Database) -> None:
    for act in (redrive, ignore):
        with pytest.raises(StateError, match="MP440 letter 77: there is no such letter"):
            await act(database, 77)


async def test_a_letter_that_only_waited_is_tried_as_often_as_an_event(
    database: Database, broken: Broken, effects: Effects
) -> None:
    retry = Retry(attempts=3, first=timedelta(milliseconds=1))
    failures = ["o-1", "o-1"]

    async def handle(event: Paid, tx: Transaction) -> None:
        await broken.apply(event, tx)
        if event.order in failures:
            failures.remove(event.order)
            raise ValueError("for a moment")

    broken.orders = {"o-0"}
    consumer = consumer_of("c", "t", handle, retry=retry, hold_key=True)
    await intake_of(consumer, database).handle([keyed(0, b"a"), keyed(1, b"a")])
    broken.orders = set()
    await redrive(database, 1)
    await drained(redriver_of(consumer, database))
    assert await effects.orders() == ["o-0", "o-1"]
    assert await states(database) == [("RESOLVED", "HANDLER_FAILED"), ("RESOLVED", "KEY_HELD")]


async def test_what_a_consumer_prepares_for_a_batch_it_prepares_for_a_letter(
    database: Database, broken: Broken
) -> None:
    prepared = list[str]()

    async def prepare(tx: Transaction, events: Sequence[tuple[Event, Envelope]]) -> None:
        prepared.extend(event.order for event, _ in events if isinstance(event, Paid))

    broken.orders = {"o-0"}
    await intake_of(consumer_of("c", "t", broken.apply, retry=ONCE), database).handle([record(0)])
    broken.orders = set()
    preparing = PreparedConsumer("c", prepare)
    preparing.on(Paid)(broken.apply)
    await redrive(database, 1)
    await drained(redriver_of(preparing, database))
    assert (prepared, await broken.effects.orders()) == (["o-0"], ["o-0"])


async def test_a_session_of_the_users_engine_shares_the_redrives_transaction(
    database_url: str, database: Database, broken: Broken
) -> None:
    async def handle(event: Paid, tx: Transaction) -> None:
        statement = text("INSERT INTO effect (event, text) VALUES (:id, :order)")
        await tx.session.execute(statement, {"id": tx.envelope.id, "order": event.order})
        if event.order in broken.orders:
            raise ValueError("broken")

    broken.orders = {"o-0"}
    engine = create_async_engine(database_url.replace("postgresql://", "postgresql+asyncpg://"))
    with_engine = Database(Settings(database_url=PostgresDsn(database_url)), engine=engine)
    await with_engine.open()
    try:
        consumer = consumer_of("c", "t", handle, retry=ONCE, hold_key=True)
        await intake_of(consumer, with_engine).handle([keyed(0, b"a"), keyed(1, b"a")])
        await redrive(database, 1)
        await drained(redriver_of(consumer, with_engine))
        assert await states(database) == [("OPEN", "HANDLER_FAILED"), ("OPEN", "KEY_HELD")]
        broken.orders = set()
        await redrive(database, 1)
        await drained(redriver_of(consumer, with_engine))
    finally:
        await with_engine.close()
        await engine.dispose()
    assert await broken.effects.orders() == ["o-0", "o-1"]


async def test_a_second_process_leaves_a_consumer_alone_whose_letter_is_being_handled(
    database: Database, broken: Broken
) -> None:
    entered, gate = asyncio.Event(), asyncio.Event()

    async def handle(event: Paid, tx: Transaction) -> None:
        await broken.apply(event, tx)
        if not broken.orders:
            entered.set()
            await gate.wait()

    broken.orders = {"o-0", "o-1"}
    consumer = consumer_of("c", "t", handle, retry=ONCE)
    await intake_of(consumer, database).handle([record(0), record(1)])
    broken.orders = set()
    for n in (1, 2):
        await redrive(database, n)
    first = asyncio.create_task(redriver_of(consumer, database).once())
    await entered.wait()
    assert not await asyncio.wait_for(redriver_of(consumer, database).once(), 10)
    gate.set()
    assert await first
    assert await broken.effects.orders() == ["o-0"]
    assert await broken.effects.value("SELECT max(tries) FROM milepost.dead_letter") == 1


async def test_an_event_that_was_applied_meanwhile_resolves_its_letter_without_the_handler(
    database: Database, broken: Broken, consumer: Consumer
) -> None:
    broken.orders = {"o-0"}
    await intake_of(consumer, database).handle([record(0)])
    broken.orders = set()
    await database.pool.execute("UPDATE milepost.inbox SET outcome = 'APPLIED'")
    await redrive(database, 1)
    await drained(redriver_of(consumer, database))
    assert await broken.effects.orders() == []
    assert await states(database) == [("RESOLVED", "HANDLER_FAILED")]
    assert "applied meanwhile" in await broken.effects.value(
        "SELECT reason FROM milepost.audit WHERE act = 'letter.resolved'"
    )
