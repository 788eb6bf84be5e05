"""What is said about an encrypted event whose handler fails: logs, health and spans quote nothing of it."""

from __future__ import annotations

import secrets
from typing import Any

import pytest
from milepost import AesGcm, Consumer, Event, Retry
from milepost.outbox.model import event_row
from milepost.schemas.envelope import Record
from milepost.schemas.transaction import Transaction
from milepost.streams.tracing import setup_tracing
from milepost.streams.words import words_of
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine

from tests.support.inbox import Sent, intake_of, opened, reader_of, running, send
from tests.support.otlp import receiving
from tests.support.outbox import CLOCK, IDS, make_topics
from tests.support.publishers import at
from tests.support.waiting import until

SECRET = f"4111-{secrets.token_hex(12)}"
#: A statement that PostgreSQL ends as it ends one that lost against another transaction.
LOST = text("SELECT milepost_test_lost(:card)")
MAKE_LOST = """
CREATE FUNCTION milepost_test_lost(card text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'lost' USING ERRCODE = 'serialization_failure'; END $$
"""


def paid(topic: str) -> Any:
    class Paid(Event, type="shop.paid", topic=topic, key="order", codec=AesGcm({"a": b"k" * 32})):
        order: str
        card: str

    return Paid


def plain(topic: str) -> Any:
    class Paid(Event, type="shop.paid", topic=topic, key="order"):
        order: str
        card: str

    return Paid


def sent(kind: Any) -> Sent:
    """An event as it stands on its topic."""
    row = event_row(kind(order="o", card=SECRET), ids=IDS, clock=CLOCK)
    return Sent(value=row.payload, headers=[(name, said.encode()) for name, said in row.headers.items()])


async def test_trouble_underneath_is_logged_without_what_the_statement_carried(
    database_url: str, kafka: str, topic_prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic = f"{topic_prefix}.paid"
    await make_topics(kafka, topic, partitions=1)
    engine = create_async_engine(at(database_url, "asyncpg"))
    tries: list[str] = []
    consumer = Consumer(f"{topic_prefix}.billing")
    kind = paid(topic)

    async def handle(event: Any, tx: Transaction) -> None:
        tries.append(event.card)
        if len(tries) < 3:
            async with engine.connect() as connection:
                await connection.execute(LOST, {"card": event.card})

    consumer.on(kind)(handle)
    await send(kafka, topic, [sent(kind)])
    async with opened(database_url) as database:
        await database.pool.execute(MAKE_LOST)
        reader = reader_of(consumer, database, kafka)
        health = set[str]()
        async with running(reader):

            def handled() -> bool:
                health.add(reader.health().detail)
                return len(tries) == 3

            await until(handled, within=60, what="the third try")
    await engine.dispose()
    assert tries == [SECRET] * 3
    assert "lost; trying again" in caplog.text and any("lost" in words for words in health), "it is told"
    assert SECRET not in caplog.text and not any(SECRET in words for words in health)


async def test_words_of_a_statement_that_failed(database_url: str) -> None:
    engine = create_async_engine(at(database_url, "psycopg"))
    async with engine.connect() as connection:
        with pytest.raises(DBAPIError) as raised:
            await connection.execute(text("SELECT CAST(:card AS text)::date / 0"), {"card": SECRET})
    await engine.dispose()
    assert SECRET in str(raised.value) and SECRET not in words_of(raised.value)
    assert "operator does not exist" in words_of(raised.value)


@pytest.mark.parametrize("encrypted", [True, False])
async def test_a_span_of_a_handler_that_failed(
    database_url: str, monkeypatch: pytest.MonkeyPatch, encrypted: bool
) -> None:
    kind = paid("t") if encrypted else plain("t")
    taken: list[bytes] = []

    async def handle(event: Any, tx: Transaction) -> None:
        raise ValueError(f"cannot take {event.card}")

    consumer = Consumer("billing", retry=Retry(attempts=1))
    consumer.on(kind)(handle)
    with receiving() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        take = receiver.take

        def keep(body: bytes) -> None:
            taken.append(body)
            take(body)

        monkeypatch.setattr(receiver, "take", keep)
        shutdown = setup_tracing("test")
        one = sent(kind)
        record = Record("t", 0, 0, None, one.value, one.headers, int(CLOCK.now().timestamp() * 1000))
        async with opened(database_url) as database:
            await intake_of(consumer, database).handle([record])
        shutdown()
        assert all(span.failed for span in receiver.named("process shop.paid"))
    assert (SECRET.encode() in b"".join(taken)) is not encrypted, "the words of an open event are there"
