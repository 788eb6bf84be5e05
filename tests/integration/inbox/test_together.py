"""Events that a handler takes together: once each, in order, in one call, and one by one where a call fails."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from milepost.inbox.consumer import Consumer
from milepost.inbox.intake import Intake
from milepost.schemas.envelope import Record
from milepost.schemas.errors import UsageError
from milepost.schemas.events import Event
from milepost.schemas.options import Retry
from milepost.schemas.transaction import Transaction
from milepost.streams.database import Database

from tests.support.inbox import IDS, Effects, Paid, headers, intake_of, record

ALL = "INSERT INTO effect (event, text) SELECT * FROM unnest($1::uuid[], $2::text[])"
QUICK = Retry(attempts=3, first=timedelta(milliseconds=1))


class Sold(Paid, type="test.paid", version=1, topic="t", key="order"):
    """What these tests take together."""


class Note(Event, type="test.note", topic="t"):
    """What stands between them."""

    order: str


class Till:
    """Takes events together, notes each call, and may refuse an order."""

    def __init__(self, bad: str = "") -> None:
        self.calls: list[list[str]] = []
        self.bad = bad

    async def take(self, events: Sequence[Sold], tx: Transaction) -> None:
        """Write all effects with one statement, then fail if one is bad."""
        self.calls.append([event.order for event in events])
        ids = [envelope.id for envelope in tx.envelopes]
        await tx.connection.execute(ALL, ids, [event.order for event in events])
        if any(event.order == self.bad for event in events):
            raise LookupError("refused")


def intake(till: Till, database: Database) -> Intake:
    consumer = Consumer("c", retry=QUICK)
    consumer.on_batch(Sold)(till.take)
    return intake_of(consumer, database)


async def test_new_events_come_in_one_call_and_in_order(database: Database, effects: Effects) -> None:
    till, ids = Till(), sorted((IDS.new() for _ in range(6)), reverse=True)
    inbox = intake(till, database)
    await inbox.handle([record(n, event_id=ids[n]) for n in range(4)])
    again = [record(5, event_id=ids[5]), record(1, event_id=ids[1]), record(4, event_id=ids[4])]
    await inbox.handle([again[0], again[1], again[2], again[0]])
    assert till.calls == [["o-0", "o-1", "o-2", "o-3"], ["o-5", "o-4"]]
    assert [row["event"] for row in await effects.rows("SELECT event FROM effect ORDER BY n")] == [
        *ids[:4],
        ids[5],
        ids[4],
    ]
    assert (inbox.counts.applied, inbox.counts.duplicates) == (6, 2)


def note(n: int) -> Record:
    found = record(n)
    found_headers = headers(IDS.new(), type="test.note")
    return Record("t", 0, n, None, found.value, found_headers, found.timestamp_ms)


async def test_the_order_between_types_is_kept(database: Database) -> None:
    till, seen = Till(), list[str]()
    consumer = Consumer("c", retry=QUICK)
    consumer.on_batch(Sold)(till.take)

    @consumer.on(Note)
    async def take_note(event: Note, tx: Transaction) -> None:
        seen.append(f"{event.order} after {len(till.calls)} calls, of {tx.envelope.id}")
        assert list(tx.envelopes) == [tx.envelope]

    records = [record(0), record(1), note(2), note(3), record(4)]
    await intake_of(consumer, database).handle(records)
    assert till.calls == [["o-0", "o-1"], ["o-4"]]
    assert [text.partition(", ")[0] for text in seen] == ["o-2 after 1 calls", "o-3 after 1 calls"]


async def test_a_call_that_fails_is_tried_one_by_one_and_the_bad_one_parked(
    database: Database, effects: Effects
) -> None:
    till = Till(bad="o-2")
    inbox = intake(till, database)
    await inbox.handle([note(0), *(record(n) for n in range(1, 5)), note(5)])
    assert till.calls == [["o-1", "o-2", "o-3", "o-4"], ["o-1"], *[["o-2"]] * 3, ["o-3"], ["o-4"]]
    assert await effects.orders() == ["o-1", "o-3", "o-4"]
    (letter,) = await effects.rows('SELECT code, attempts, "offset", message FROM milepost.dead_letter')
    assert (letter["code"], letter["attempts"], letter["offset"]) == ("HANDLER_FAILED", 3, 2)
    await inbox.handle([record(6)])
    assert await effects.orders() == ["o-1", "o-3", "o-4", "o-6"]


async def test_duplicates_between_neighbours_are_passed_when_one_by_one(
    database: Database, effects: Effects
) -> None:
    till, twice = Till(bad="o-3"), IDS.new()
    inbox = intake(till, database)
    await inbox.handle([record(0, event_id=twice)])
    await inbox.handle([record(1), record(0, event_id=twice), record(3), record(4)])
    assert await effects.orders() == ["o-0", "o-1", "o-4"]
    assert inbox.counts.parked == 1


async def test_several_have_no_envelope_of_their_own(database: Database, effects: Effects) -> None:
    consumer, codes = Consumer("c", retry=QUICK), list[str]()

    @consumer.on_batch(Sold)
    async def take(events: Sequence[Sold], tx: Transaction) -> None:
        ids: list[UUID] = [envelope.id for envelope in tx.envelopes]
        assert len(ids) == len(events)
        try:
            codes.append(str(tx.envelope.id == ids[0]))
        except UsageError as error:
            codes.append(error.code)

    inbox = intake_of(consumer, database)
    await inbox.handle([record(0), record(1)])
    await inbox.handle([record(2)])
    assert codes == ["MP305", "True"]


async def test_a_handler_that_commits_leaves_no_mark_of_what_it_was_given(
    database: Database, effects: Effects
) -> None:
    """Whatever it has committed with: the events are tried again one by one, and parked."""
    consumer, calls = Consumer("c", retry=QUICK), list[int]()

    @consumer.on_batch(Sold)
    async def take(events: Sequence[Sold], tx: Transaction) -> None:
        calls.append(len(events))
        await tx.connection.execute("COMMIT")

    await intake_of(consumer, database).handle([record(0), record(1)])
    assert calls == [2, 1, 1]
    found = await effects.rows("SELECT outcome, count(*)::int AS n FROM milepost.inbox GROUP BY outcome")
    assert [tuple(row) for row in found] == [("PARKED", 2)]
