"""A parked event holds its key: what comes after it waits behind it, in order, and other keys flow."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from milepost.inbox.consumer import Consumer
from milepost.inbox.intake import Intake
from milepost.schemas.ids import SystemClock
from milepost.schemas.transaction import Transaction
from milepost.streams.database import Database

from tests.support.inbox import Effects, Paid, consumer_of, intake_of, nothing_published
from tests.support.letters import (
    ONCE,
    Broken,
    drained,
    holds,
    ignore,
    keyed,
    redrive,
    redriver_of,
    states,
)
from tests.support.waiting import until

POSITION = "SELECT next_offset FROM milepost.consumer_position"
INBOX = 'SELECT outcome FROM milepost.inbox ORDER BY "offset"'
WAITERS = "SELECT count(*) > 0 FROM pg_locks WHERE NOT granted"


@pytest.fixture
def broken(database: Database) -> Broken:
    return Broken(Effects(database.pool))


def holding(broken: Broken, **options: Any) -> Consumer:
    return consumer_of("c", "t", broken.apply, retry=ONCE, hold_key=True, **options)


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("batch", [1, 8])
async def test_later_events_of_the_key_wait_in_order_and_other_keys_flow(
    database: Database, broken: Broken, batch: int, restart: bool
) -> None:
    """The same comes out singly and in a batch, with the process started anew after each position, and without."""
    broken.orders = {"o-1"}
    records = [keyed(n, b"a" if n % 2 else b"b") for n in range(8)]
    intake = intake_of(holding(broken), database)
    for start in range(0, 8, batch):
        intake = intake_of(holding(broken), database) if restart else intake
        await intake.handle(records[start : start + batch])
    await intake_of(holding(broken), database).handle(records)
    assert await broken.effects.orders() == ["o-0", "o-2", "o-4", "o-6"]
    assert await states(database) == [("OPEN", "HANDLER_FAILED")] + [("OPEN", "KEY_HELD")] * 3
    assert [r["outcome"] for r in await broken.effects.rows(INBOX)] == ["APPLIED", "PARKED"] * 4
    assert await holds(database) == [b"a"]
    assert await broken.effects.value(POSITION) == 8


async def test_redriving_the_first_lets_the_key_go_on_in_order(database: Database, broken: Broken) -> None:
    broken.orders = {"o-0"}
    consumer = holding(broken)
    intake, redriver = intake_of(consumer, database), redriver_of(consumer, database)
    await intake.handle([keyed(n, b"a") for n in range(4)])
    broken.orders = {"o-2"}
    await redrive(database, 1)
    await drained(redriver)
    # The third fails on its own account: the fourth goes on waiting, now behind it.
    assert await broken.effects.orders() == ["o-0", "o-1"]
    assert [status for status, _ in await states(database)] == ["RESOLVED", "RESOLVED", "OPEN", "OPEN"]
    assert await holds(database) == [b"a"]
    await intake.handle([keyed(4, b"a")])
    broken.orders = set()
    await redrive(database, 3)
    await drained(redriver)
    assert await broken.effects.orders() == [f"o-{n}" for n in range(5)]
    assert await holds(database) == []
    await intake.handle([keyed(5, b"a")])
    assert await broken.effects.orders() == [f"o-{n}" for n in range(6)]


async def test_ignoring_the_first_lets_the_key_go_on_without_it(database: Database, broken: Broken) -> None:
    broken.orders = {"o-0"}
    consumer = holding(broken)
    await intake_of(consumer, database).handle([keyed(n, b"a") for n in range(3)])
    await ignore(database, 1)
    await drained(redriver_of(consumer, database))
    assert await broken.effects.orders() == ["o-1", "o-2"]
    assert [status for status, _ in await states(database)] == ["IGNORED", "RESOLVED", "RESOLVED"]
    assert await holds(database) == []


async def test_a_letter_behind_another_is_not_taken_before_it(database: Database, broken: Broken) -> None:
    broken.orders = {"o-0"}
    consumer = holding(broken)
    await intake_of(consumer, database).handle([keyed(n, b"a") for n in range(2)])
    with pytest.raises(Exception, match=r"MP442 .*letter 2 waits behind letter 1"):
        await redrive(database, 2)


async def test_what_is_no_event_holds_its_key_until_somebody_has_looked(
    database: Database, broken: Broken
) -> None:
    consumer = holding(broken)
    await intake_of(consumer, database).handle([keyed(0, b"a", body=["no", "order"]), keyed(1, b"a")])
    assert await states(database) == [("OPEN", "INVALID_BODY"), ("OPEN", "KEY_HELD")]
    await ignore(database, 1)
    await drained(redriver_of(consumer, database))
    assert await broken.effects.orders() == ["o-1"]


async def test_events_without_a_key_hold_nothing(database: Database, broken: Broken) -> None:
    broken.orders = {"o-0"}
    await intake_of(holding(broken), database).handle([keyed(n, None) for n in range(3)])
    assert await broken.effects.orders() == ["o-1", "o-2"]
    assert await holds(database) == []


async def test_a_key_of_ten_kilobytes_is_held_too(database: Database, broken: Broken) -> None:
    broken.orders = {"o-0"}
    key = bytes(range(256)) * 40
    await intake_of(holding(broken), database).handle([keyed(0, key), keyed(1, key), keyed(2, key + b"x")])
    assert await broken.effects.orders() == ["o-2"]
    assert [code for _, code in await states(database)] == ["HANDLER_FAILED", "KEY_HELD"]


async def test_without_hold_key_nothing_waits(database: Database, broken: Broken) -> None:
    broken.orders = {"o-0"}
    consumer = consumer_of("c", "t", broken.apply, retry=ONCE)
    await intake_of(consumer, database).handle([keyed(n, b"a") for n in range(3)])
    assert await broken.effects.orders() == ["o-1", "o-2"]
    assert await holds(database) == []


async def test_another_body_under_a_known_id_holds_nothing(database: Database, broken: Broken) -> None:
    first = keyed(0, b"a")
    event_id = dict(first.headers)["ce_id"]
    assert event_id is not None
    again = keyed(1, b"a", body={"order": "other"})
    again = type(again)(**{**_fields(again), "headers": first.headers})
    await intake_of(holding(broken), database).handle([first, again, keyed(2, b"a")])
    assert await broken.effects.orders() == ["o-0", "o-2"]
    assert await states(database) == [("OPEN", "EVENT_ID_REUSED")]


def _fields(record: Any) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__slots__}


async def test_a_hold_that_is_being_worked_off_is_waited_for(database: Database, broken: Broken) -> None:
    """The redrive has handled the last letter and not committed: the next event waits, and is not parked for good."""
    broken.orders = {"o-0"}
    gate, entered = asyncio.Event(), asyncio.Event()

    async def slow(event: Paid, tx: Transaction) -> None:
        await broken.apply(event, tx)
        if event.order == "o-0":
            entered.set()
            await gate.wait()

    consumer = consumer_of("c", "t", slow, retry=ONCE, hold_key=True)
    gate.set()
    await intake_of(consumer, database).handle([keyed(0, b"a")])
    broken.orders = set()
    gate.clear()
    entered.clear()
    await redrive(database, 1)
    releasing = asyncio.create_task(redriver_of(consumer, database).once())
    await entered.wait()
    next_one = asyncio.create_task(intake_of(consumer, database).handle([keyed(1, b"a")]))
    await until(lambda: broken.effects.value(WAITERS), what="the consumer to wait for the hold")
    gate.set()
    await asyncio.gather(releasing, next_one)
    assert await broken.effects.orders() == ["o-0", "o-1"]
    assert await states(database) == [("RESOLVED", "HANDLER_FAILED")]
    assert await holds(database) == []


async def test_a_letter_that_is_being_parked_is_seen_by_who_releases(
    database: Database, broken: Broken
) -> None:
    """The consumer has seen the hold and not committed its letter: the redrive waits, and finds it behind the first."""
    broken.orders = {"o-0"}
    gate, entered = asyncio.Event(), asyncio.Event()

    async def slow(event: Paid, tx: Transaction) -> None:
        await broken.apply(event, tx)
        if event.order == "o-2":
            entered.set()
            await gate.wait()

    consumer = consumer_of("c", "t", slow, retry=ONCE, hold_key=True)
    intake = intake_of(consumer, database)
    await intake.handle([keyed(0, b"a")])
    broken.orders = set()
    parking = asyncio.create_task(intake.handle([keyed(1, b"a"), keyed(2, b"b")]))
    await entered.wait()
    await redrive(database, 1)
    redriver = redriver_of(consumer, database)
    releasing = asyncio.create_task(drained(redriver))
    await until(lambda: broken.effects.value(WAITERS), what="the redrive to wait for the consumer")
    gate.set()
    await asyncio.gather(parking, releasing)
    await drained(redriver)
    assert await broken.effects.orders() == ["o-2", "o-0", "o-1"]
    assert [status for status, _ in await states(database)] == ["RESOLVED", "RESOLVED"]
    assert await holds(database) == []


async def test_an_owner_that_was_replaced_parks_while_the_next_one_reads_on(
    database: Database, broken: Broken
) -> None:
    """The next owner's batch waits at the first one's inbox row, and then has to see the hold beside it."""
    gate, entered = asyncio.Event(), asyncio.Event()

    async def report(*_: Any) -> None:
        entered.set()
        await gate.wait()

    consumer = holding(broken)
    records = [keyed(0, b"a", body=["no", "order"]), keyed(1, b"a")]
    old = Intake(consumer, database, nothing_published, clock=SystemClock(), report=report)
    parking = asyncio.create_task(old.handle(records[:1]))
    await entered.wait()
    new = asyncio.create_task(intake_of(consumer, database).handle(records))
    await until(lambda: broken.effects.value(WAITERS), what="the second owner to wait")
    gate.set()
    await asyncio.gather(parking, new)
    assert await broken.effects.orders() == []
    assert await states(database) == [("OPEN", "INVALID_BODY"), ("OPEN", "KEY_HELD")]


@pytest.mark.parametrize("hold_key", [False, True])
async def test_keeping_holds_costs_no_statement_more(
    database: Database, broken: Broken, hold_key: bool
) -> None:
    """A batch of a consumer that holds nothing sends as many statements whether or not it would hold keys."""
    intake = intake_of(consumer_of("c", "t", broken.apply, hold_key=hold_key), database)
    sent = list[str]()
    real = database.pool

    def note(query: Any) -> None:
        # The driver asks for the types of arrays the first time.
        sent.extend([query.query] if "milepost." in query.query else [])

    async with real.acquire() as connection:
        connection.add_query_logger(note)
        plan, _ = await intake._claim(
            connection, [*intake._read([keyed(0, b"a"), keyed(1, b"b")], 0.0, None)]
        )
        connection.remove_query_logger(note)
    assert len(plan.handle) == 2
    assert len(sent) == 1, sent
