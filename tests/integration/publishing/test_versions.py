"""Old and new versions of an event on their way through topics, inboxes and waits."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from milepost import AesGcm, Consumer, Event, Milepost, RunState, Saga, Then, UsageError
from milepost.inbox.signals import NewSignal, store_signals
from milepost.schemas.ids import SystemIds
from milepost.schemas.transaction import Transaction
from milepost.testing import open_kit
from pydantic import BaseModel, Field

from tests.support.inbox import Sent, headers, opened, reader_of, running, send
from tests.support.outbox import connected, make_topics
from tests.support.waiting import until

IDS = SystemIds()


class Order(BaseModel):
    id: str


class Delivered(
    Event, type="carrier.delivered", version=3, topic="deliveries", key="order_id", correlate="order_id"
):
    order_id: str
    place: str
    days: int


@Delivered.upcast(from_version=1)
def with_place(body: dict[str, Any]) -> dict[str, Any]:
    return {**body, "place": "door"}


@Delivered.upcast(from_version=2)
def with_days(body: dict[str, Any]) -> dict[str, Any]:
    return {**body, "days": body.pop("hours") // 24}


def of_version(topic_event: str, version: int, body: Any, key: str) -> Sent:
    found = headers(IDS.new(), type=topic_event, ce_eventversion=str(version))
    return Sent(value=json.dumps(body).encode(), headers=found, key=key.encode())


async def test_consumers_read_old_versions_and_put_newer_ones_aside(
    database_url: str, kafka: str, topic_prefix: str
) -> None:
    topic = f"{topic_prefix}.deliveries"
    await make_topics(kafka, topic, partitions=1)

    class Here(Delivered, type="carrier.delivered", version=3, topic=topic):
        pass

    for version, upcaster in Delivered.milepost_upcasters.items():
        Here.upcast(from_version=version)(upcaster)
    got: set[tuple[str, str, int]] = set()

    async def handle(event: Delivered, tx: Transaction) -> None:
        got.add((event.order_id, event.place, event.days))

    consumer = Consumer(f"{topic_prefix}.c")
    consumer.on(Here)(handle)
    bodies: list[tuple[int, dict[str, Any]]] = [
        (1, {"order_id": "one", "hours": 50}),
        (2, {"order_id": "two", "hours": 24, "place": "shop"}),
        (3, {"order_id": "three", "place": "box", "days": 3}),
        (4, {"order_id": "four", "place": "box", "days": 3}),
        (1, {"order_id": "broken"}),
    ]
    await send(
        kafka, topic, [of_version("carrier.delivered", n, body, str(body["order_id"])) for n, body in bodies]
    )
    async with connected(database_url) as (connection,), opened(database_url) as database:
        async with running(reader_of(consumer, database, kafka)):
            await until(
                lambda: connection.fetchval("SELECT max(next_offset) = 5 FROM milepost.consumer_position"),
                within=60,
                what="all five records",
            )
        letters = await connection.fetch(
            "SELECT convert_from(key, 'UTF8') AS key, code, recoverable, value FROM milepost.dead_letter ORDER BY 1"
        )
    assert got == {("one", "door", 2), ("two", "shop", 1), ("three", "box", 3)}
    assert [(row["key"], row["code"], row["recoverable"]) for row in letters] == [
        ("broken", "UPCAST_FAILED", True),
        ("four", "EVENT_TOO_NEW", True),
    ]
    assert json.loads(letters[1]["value"])["days"] == 3, "the letter has the bytes as they were sent"


async def test_a_tombstone_is_passed_over_and_a_missing_value_is_not(
    database_url: str, kafka: str, topic_prefix: str
) -> None:
    topic = f"{topic_prefix}.deliveries"
    await make_topics(kafka, topic, partitions=1)

    class Here(Delivered, type="carrier.delivered", version=3, topic=topic):
        pass

    async def handle(event: Delivered, tx: Transaction) -> None:
        raise AssertionError("there is no event")

    consumer = Consumer(f"{topic_prefix}.c", unknown="dead_letter")
    consumer.on(Here)(handle)
    stone = headers(IDS.new(), type="carrier.delivered", **{"milepost-tombstone": "true"})
    empty = headers(IDS.new(), type="carrier.delivered")
    await send(kafka, topic, [Sent(value=None, headers=stone), Sent(value=None, headers=empty)])
    async with connected(database_url) as (connection,), opened(database_url) as database:
        async with running(reader_of(consumer, database, kafka)):
            await until(
                lambda: connection.fetchval("SELECT max(next_offset) = 2 FROM milepost.consumer_position"),
                within=60,
                what="both records",
            )
        letters = await connection.fetch('SELECT code, "offset" FROM milepost.dead_letter')
    assert [tuple(row) for row in letters] == [("NO_VALUE", 1)]


def shop() -> tuple[Milepost, Saga[Order], Any]:
    saga = Saga("order", version=1, input=Order, key=lambda o: o.id)
    wait = saga.wait(
        "delivered", Delivered, match=lambda v: v.input.id, timeout=timedelta(days=3), on_timeout=Then.PERSON
    )
    saga.flow(wait)
    return Milepost("shop", sagas=[saga]), saga, wait


@pytest.mark.parametrize(
    ("version", "body", "days"),
    [
        (1, {"order_id": "o-1", "hours": 50}, 2),
        (2, {"order_id": "o-1", "hours": 72, "place": "door"}, 3),
        (3, {"order_id": "o-1", "days": 4, "place": "door"}, 4),
        (None, {"order_id": "o-1", "days": 5, "place": "door"}, 5),
    ],
)
async def test_a_signal_stored_by_an_older_process_is_brought_up_when_its_wait_reads_it(
    version: int | None, body: dict[str, Any], days: int
) -> None:
    service, saga, wait = shop()
    signal = NewSignal(
        id=IDS.new(),
        tenant="",
        source="carrier",
        event_id="e-1",
        type="carrier.delivered",
        key="o-1",
        payload=json.dumps(body),
        version=version,
    )
    async with open_kit(service) as kit:
        async with kit._opened.database.pool.acquire() as connection, connection.transaction():
            await store_signals(connection, [signal])
        run = await kit.start(saga, Order(id="o-1"))
        await kit.until(run, RunState.SUCCEEDED)
        assert await kit.result(run, wait) == Delivered(order_id="o-1", place="door", days=days)


async def test_a_signal_of_a_newer_version_goes_to_a_person_and_a_new_one_says_its_version() -> None:
    service, saga, _ = shop()
    async with open_kit(service) as kit:
        pool = kit._opened.database.pool
        new = NewSignal(
            id=IDS.new(),
            tenant="",
            source="carrier",
            event_id="e-1",
            type="carrier.delivered",
            key="o-1",
            payload='{"order_id": "o-1", "place": "door", "days": 4}',
            version=4,
        )
        async with pool.acquire() as connection, connection.transaction():
            await store_signals(connection, [new])
        run = await kit.start(saga, Order(id="o-1"))
        await kit.until(run, RunState.MANUAL_REQUIRED)
        await kit.deliver(Delivered(order_id="o-2", place="door", days=1))
        assert await pool.fetch("SELECT key, version FROM milepost.signal ORDER BY key") == [
            ("o-1", 4),
            ("o-2", 3),
        ]


async def test_the_kit_reads_what_was_encrypted_and_no_signal_is_given_readable() -> None:
    class Card(
        Event, type="shop.card", topic="cards", key="id", correlate="id", codec=AesGcm({"k": b"k" * 32})
    ):
        id: str
        number: str = Field(alias="cardNumber")

    service, _, _ = shop()
    async with open_kit(service) as kit:
        card = Card(id="c-1", cardNumber="4111")
        async with kit._opened.database.transaction(_publisher) as tx:
            await tx.publish(card)
            with pytest.raises(UsageError, match=r"MP348 signal\(shop.card\)"):
                await service.signal(tx, card)
        assert await kit.published(Card) == [card]


async def _publisher(tx: Transaction, events: tuple[Event, ...]) -> Any:
    from milepost import publish

    return await publish(tx, *events)
