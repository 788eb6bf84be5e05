"""A saga about a customer whose event is encrypted: nothing of it is in Milepost's tables, in logs or in spans."""

from __future__ import annotations

import logging
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from milepost import AesGcm, Context, Event, Milepost, Repeat, Retry, RunState, Saga, Transaction
from milepost.streams.tracing import setup_tracing
from milepost.testing import open_kit
from pydantic import BaseModel

from tests.support.kitshop import NOWHERE
from tests.support.otlp import receiving
from tests.support.waiting import until

CARD = f"4111{secrets.token_hex(12)}"
CODEC = AesGcm({"k": b"k" * 32})


class Order(BaseModel):
    """The saga's input: a reference, and nothing of the customer."""

    id: str


class CardGiven(Event, type="private.card-given", topic="cards", key="order", codec=CODEC):
    order: str
    card: str


class CardCharged(Event, type="private.card-charged", topic="charges", key="order", codec=CODEC):
    order: str
    card: str


class Answer(BaseModel):
    """What the bank is expected to say."""

    charged: int


class Bank:
    """Knows the card; at first it answers with it instead of an amount."""

    def __init__(self) -> None:
        self.calls = 0

    def charge(self) -> Answer:
        self.calls += 1
        return Answer.model_validate({"charged": CARD if self.calls == 1 else 7})


@asynccontextmanager
async def banks() -> AsyncIterator[Bank]:
    yield Bank()


def shop() -> tuple[Milepost, Saga[Order]]:
    """A consumer that keeps the card in the user's own table, and a saga that works with it."""
    saga = Saga("private", version=1, input=Order, key=lambda order: order.id)

    @saga.step(repeat=Repeat.SAFE, retry=Retry(attempts=3, first=timedelta(milliseconds=1)), no_undo="a test")
    async def charge(ctx: Context[Order]) -> Answer:
        answer = ctx.use(Bank).charge()
        ctx.emit(CardCharged(order=ctx.input.id, card=CARD))
        return answer

    @saga.tx_step(retry=Retry(attempts=1))
    async def keep(ctx: Context[Order], tx: Transaction) -> None:
        await tx.connection.execute("INSERT INTO card (number) VALUES ($1)", CARD)

    saga.flow(charge, keep)
    service = Milepost("private", sagas=[saga], settings=NOWHERE)
    service.provide(Bank, banks)
    consumer = service.consumer("cards")

    @consumer.on(CardGiven)
    async def given(event: CardGiven, tx: Transaction) -> None:
        await tx.connection.execute("INSERT INTO card (number) VALUES ($1)", event.card)
        await service.start(tx, saga, Order(id=event.order))

    return service, saga


async def make_table(tx: Transaction) -> None:
    await tx.connection.execute("CREATE TABLE card (number text PRIMARY KEY)")


async def told(connection: Any) -> list[str]:
    """Return the tables of Milepost's in which the card can be read."""
    tables = await connection.fetch(
        "SELECT relname FROM pg_class WHERE relnamespace = 'milepost'::regnamespace AND relkind IN ('r', 'p')"
    )
    return [
        table["relname"]
        for table in tables
        if await connection.fetchval(
            f"SELECT EXISTS (SELECT 1 FROM milepost.{table['relname']} AS t "
            "WHERE t::text LIKE '%' || $1::text || '%' OR t::text LIKE '%' || encode($1::text::bytea, 'hex') || '%')",
            CARD,
        )
    ]


async def test_nothing_of_it_is_in_tables_logs_or_spans(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, saga = shop()
    caplog.set_level(logging.DEBUG, logger="milepost")
    with receiving() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        shutdown = setup_tracing("private")
        async with open_kit(service, prepare=make_table) as kit:
            bank = Bank()
            kit.provide(Bank, bank)
            await kit.deliver(CardGiven(order="o-1", card=CARD))
            run = await kit.start(saga, Order(id="o-1"))
            await kit.until(run, RunState.FAILED)
            assert bank.calls == 2
            assert await kit.published(CardCharged) == [CardCharged(order="o-1", card=CARD)]
            async with kit._opened.database.pool.acquire() as connection:
                assert await connection.fetchval("SELECT count(*) FROM card WHERE number = $1", CARD) == 1
                history = await connection.fetch("SELECT event, data::text FROM milepost.history ORDER BY n")
                assert await told(connection) == []
        shutdown()
        await until(lambda: bool(receiver.named("step keep")))
    said = [row["data"] for row in history if row["event"] == "step.failed"]
    assert len(said) == 2, "one try of each step failed, with the card in its exception"
    assert "ValidationError of Answer: charged: int_parsing" in said[0]
    assert "duplicate key" in said[1]
    assert "try 1: VALIDATIONERROR" in caplog.text
    assert CARD not in caplog.text
    assert receiver.named("step charge")
    assert CARD not in repr(receiver.spans)
