"""One trace from the sender's span through outbox, relay, Kafka and handler, seen by a real OTLP receiver."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from milepost.inbox.consumer import Consumer
from milepost.outbox.publish import publish
from milepost.outbox.relay import Relay
from milepost.schemas.events import Event
from milepost.schemas.ids import SystemClock, SystemIds, SystemRandomness
from milepost.schemas.transaction import Transaction
from milepost.streams.database import Database
from milepost.streams.lifecycle import Stop
from milepost.streams.topics import ensure_topics
from milepost.streams.tracing import current_traceparent, past_span, setup_tracing, span

from tests.support.inbox import (
    IDS,
    Effects,
    Paid,
    Sent,
    consumer_of,
    headers,
    intake_of,
    reader_of,
    record,
    running,
    send,
)
from tests.support.otlp import Receiver, receiving
from tests.support.waiting import until

GOOD = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    with receiving() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        shutdown = setup_tracing("tracing-test")
        yield receiver
        shutdown()


async def test_spans_arrive_with_service_parent_links_and_times(receiver: Receiver) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    with pytest.raises(ValueError, match="no"), span("failing", traceparent=GOOD, attributes={"n": 1}):
        with span("inner"):
            raise ValueError("no")
    past_span(
        "wait delivered",
        start=start,
        end=start + timedelta(hours=1),
        traceparent=GOOD,
        links=[GOOD, "nonsense"],
    )
    await until(lambda: len(receiver.spans) == 3)
    (failing,), (inner,), (wait,) = (receiver.named(name) for name in ("failing", "inner", "wait delivered"))
    assert {found.trace_id for found in receiver.spans} == {GOOD.split("-")[1]}
    assert failing.service == "tracing-test"
    assert failing.parent_id == wait.parent_id == GOOD.split("-")[2]
    assert inner.parent_id == failing.span_id
    assert failing.failed and failing.attributes["n"] == 1
    assert wait.links == (GOOD.split("-")[1],)
    assert wait.end_ns - wait.start_ns == 3_600_000_000_000
    assert wait.start_ns == int(start.timestamp()) * 1_000_000_000


async def test_shutdown_sends_what_is_left_and_may_be_set_up_again(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutdown = setup_tracing("second")
    with span("last words"):
        pass
    await asyncio.to_thread(shutdown)
    assert [found.service for found in receiver.named("last words")] == ["second"]


async def test_a_collector_that_is_away_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    shutdown, clock = setup_tracing("lonely"), SystemClock()
    with span("unheard"):
        pass
    began = clock.monotonic()
    await asyncio.to_thread(shutdown)
    assert clock.monotonic() - began < 8


async def test_each_handled_event_has_a_span_under_its_senders(
    receiver: Receiver, database: Database
) -> None:
    seen: list[str | None] = []
    effects = Effects(database.pool)

    async def handle(event: Paid, tx: Transaction) -> None:
        await effects.apply(event, tx)
        seen.append(current_traceparent())

    intake = intake_of(consumer_of("c", "t", handle), database)
    parents = [GOOD, "malformed", GOOD.upper(), f"{GOOD},{GOOD}"]
    records = [
        replace(record(n), headers=headers(IDS.new(), traceparent=parent)) for n, parent in enumerate(parents)
    ]
    await intake.handle(records)
    assert await effects.orders() == ["o-0", "o-1", "o-2", "o-3"], "a malformed header never fails processing"
    await until(lambda: len(receiver.named("process test.paid")) == 4)
    by_offset = sorted(receiver.named("process test.paid"), key=lambda found: found.start_ns)
    assert by_offset[0].trace_id == GOOD.split("-")[1] and by_offset[0].parent_id == GOOD.split("-")[2]
    assert all(found.parent_id == "" for found in by_offset[1:])
    assert len({found.trace_id for found in by_offset}) == 4
    assert [(text or "").split("-")[2] for text in seen] == [found.span_id for found in by_offset]
    assert by_offset[0].kind == 5, "CONSUMER"


async def test_one_trace_from_request_to_the_event_that_the_handler_publishes(
    receiver: Receiver, database: Database, kafka: str, topic_prefix: str
) -> None:
    first, second = f"{topic_prefix}.placed", f"{topic_prefix}.booked"
    await ensure_topics(kafka, [first, second], partitions=1)

    class Booked(Event, type="test.booked", topic=second, key="order"):
        order: str

    class Placed(Paid, type="test.paid", topic=first, key="order"):
        pass

    async def published(tx: Transaction, events: tuple[Event, ...]) -> list[object]:
        return list(await publish(tx, *events))

    seen: list[Paid] = []

    async def book(event: Paid, tx: Transaction) -> None:
        await tx.publish(Booked(order=event.order))

    async def end(event: Booked, tx: Transaction) -> None:
        seen.append(Paid(order=event.order))
        assert tx.envelope.correlation_id

    one = consumer_of(f"{topic_prefix}.one", first, book)
    other = Consumer(f"{topic_prefix}.two")
    other.on(Booked)(end)
    settings = database.settings.model_copy(update={"kafka": kafka})
    relayed = Database(settings)
    await relayed.open()
    relay = Relay(relayed, clock=SystemClock(), ids=SystemIds(), randomness=SystemRandomness())
    try:
        async with running(
            reader_of(one, database, kafka, publisher=published), reader_of(other, database, kafka)
        ):
            stop = Stop(SystemClock(), timedelta(seconds=5))
            relaying = asyncio.create_task(relay.run(stop))
            with span("POST /orders", kind="server"):
                trace_id = (current_traceparent() or "").split("-")[1]
                async with database.pool.acquire() as connection, connection.transaction():
                    await publish(connection, Placed(order="o-1"))
            await until(lambda: seen, within=30)
            stop.ask()
            await relaying
    finally:
        await relayed.close()
    await until(lambda: receiver.named("process test.booked"))
    spans = [*receiver.named("POST /orders"), *receiver.named("process test.paid")]
    spans += receiver.named("process test.booked")
    assert len(spans) == 3 and {found.trace_id for found in spans} == {trace_id}


async def test_a_traceparent_that_is_no_text_passes_too(
    receiver: Receiver, database: Database, kafka: str, topic_prefix: str
) -> None:
    topic = f"{topic_prefix}.events"
    await ensure_topics(kafka, [topic], partitions=1)
    effects = Effects(database.pool)
    odd: list[tuple[str, bytes | None]] = [
        *headers(IDS.new()),
        ("traceparent", b"\xc3\x28"),
        ("traceparent", None),
    ]
    async with running(reader_of(consumer_of(topic, topic, effects.apply), database, kafka)):
        await send(kafka, topic, [Sent(b'{"order": "odd"}', odd)])
        await until(lambda: effects.runs == ["odd"])
