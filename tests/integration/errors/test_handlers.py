"""A consumer's handler that fails: whether another try is made, when, and what the letter says."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import httpx
import pytest
from milepost import Event, Milepost, Refused, Retry, Settings, Transaction, publish
from milepost.consumers.judging import judge_of
from milepost.inbox.intake import Intake
from milepost.schemas.ids import SystemClock
from milepost.streams.database import Database

from tests.support.inbox import Effects, Paid, consumer_of, nothing_published, opened, record

CLOCK = SystemClock()
PATIENT = Retry(attempts=3, first=timedelta(milliseconds=1), within=timedelta(seconds=20))


class Unheard(Exception):
    """What this service says is final."""


class NotATopic(Event, type="test.never", version=1, topic="x", key="order"):
    order: str = "x"


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    async with opened(database_url) as found:
        yield found


class Case:
    """One handler that raises what it was given, one consumer, and its runs by time."""

    def __init__(self, database: Database, error: Exception | None = None, retry: Retry = PATIENT) -> None:
        given: dict[str, Any] = {"database_url": "postgresql://x@y/z"}
        service = Milepost("shop", settings=Settings(**given))
        service.classify(Unheard, "fatal", "NOT_OURS")
        self.error, self.at, self.effects = error, list[float](), Effects(database.pool)
        consumer = consumer_of("c", "t", self.handle, retry=retry, batch=10)
        self.intake = Intake(consumer, database, nothing_published, clock=CLOCK, judge=judge_of(service))

    async def handle(self, event: Paid, tx: Transaction) -> None:
        if event.order == "o-1":
            self.at.append(CLOCK.monotonic())
            if self.error is not None:
                raise self.error
            await self.fail(tx)
        await self.effects.apply(event, tx)

    async def fail(self, tx: Transaction) -> None:
        raise NotImplementedError

    async def letter(self) -> tuple[str, int]:
        await self.intake.handle([record(n) for n in range(3)])
        assert await self.effects.orders() == ["o-0", "o-2"], "the others are applied"
        ((code, attempts),) = await self.effects.rows("SELECT code, attempts FROM milepost.dead_letter")
        return code, attempts


def status(n: int, **headers: str) -> httpx.HTTPStatusError:
    answer = httpx.Response(n, headers={name.replace("_", "-"): value for name, value in headers.items()})
    return httpx.HTTPStatusError(f"{n}", request=httpx.Request("POST", "http://x"), response=answer)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Unheard("no"), "NOT_OURS"),
        (Refused("CARD_DECLINED"), "CARD_DECLINED"),
        (status(422), "HTTP_422"),
        (httpx.UnsupportedProtocol("x"), "INVALID_URL"),
    ],
)
async def test_a_definite_no_burns_no_tries(database: Database, error: Exception, code: str) -> None:
    case = Case(database, error, Retry(attempts=5, first=timedelta(hours=1)))
    assert await case.letter() == (code, 1)
    assert len(case.at) == 2, "in the batch, and once alone"


async def test_a_row_that_postgresql_refuses_burns_no_tries(database: Database) -> None:
    class Twice(Case):
        async def fail(self, tx: Transaction) -> None:
            for _ in range(2):
                await tx.connection.execute("INSERT INTO effect VALUES (7, gen_random_uuid(), 'x')")

    case = Twice(database, retry=Retry(attempts=5, first=timedelta(hours=1)))
    assert await case.letter() == ("UNIQUE_VIOLATION", 1)


async def test_a_wrong_call_of_ours_burns_no_tries(database: Database) -> None:
    class Wrong(Case):
        async def fail(self, tx: Transaction) -> None:
            await publish(tx, NotATopic(), headers={"x": "\x00"})

    code, attempts = await Wrong(database, retry=Retry(attempts=5, first=timedelta(hours=1))).letter()
    assert code.startswith("MP31") and attempts == 1


@pytest.mark.parametrize(("error", "code"), [(KeyError("x"), "HANDLER_FAILED"), (status(500), "HTTP_500")])
async def test_what_may_pass_is_tried_again(database: Database, error: Exception, code: str) -> None:
    case = Case(database, error)
    assert await case.letter() == (code, 3)
    assert len(case.at) == 4


async def test_retry_after_is_obeyed(database: Database) -> None:
    case = Case(database, status(503, Retry_After="1"))
    assert await case.letter() == ("HTTP_503", 3)
    _, first, second, third = case.at
    assert second - first >= 1.0 and third - second >= 1.0


async def test_no_try_is_made_later_than_the_consumer_has_patience_for(database: Database) -> None:
    case = Case(database, status(429, Retry_After="60"))
    assert await case.letter() == ("HTTP_429", 1)
