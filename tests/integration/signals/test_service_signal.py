"""`service.signal`: the service's own code ends a wait, in its own transaction, whoever comes first."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from milepost import Event, Repeat, RunRef, Saga, SignalRef, Then, UsageError
from milepost.console import main
from milepost.schemas.messages import ResumeMessage
from pydantic import BaseModel
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from tests.support.engine import Rig, rig
from tests.support.talk import execute


class Parcel(BaseModel):
    id: str


class Delivered(Event, type="test.delivered", topic="deliveries", key="id", correlate="id"):
    id: str
    weight: int = 1


class Unmatchable(Event, type="test.unmatchable", topic="deliveries", key="id"):
    id: str


parcel = Saga("parcel", version=1, input=Parcel, key=lambda p: p.id)
delivered = parcel.wait(
    "delivered", Delivered, match=lambda v: v.input.id, timeout=timedelta(days=3), on_timeout=Then.CANCEL
)


@parcel.step(repeat=Repeat.SAFE)
async def thank(ctx: object) -> None: ...


parcel.flow(delivered, thank)


@pytest.fixture
async def house(database_url: str) -> AsyncIterator[Rig]:
    async with rig(database_url, parcel) as house:
        yield house


async def give(house: Rig, event: Event, **more: object) -> SignalRef:
    async with house.database.pool.acquire() as connection, connection.transaction():
        return await house.service.signal(connection, event, **more)  # type: ignore[arg-type]


async def resume(house: Rig) -> int:
    """Hand the orchestrator what the outbox tells it to resume; returns how many messages there were."""
    bodies = await house.outgoing("milepost.resume")
    for body in bodies:
        message = ResumeMessage.model_validate(body)
        await house.orchestrator.resume(message)
    return len(bodies)


async def delivered_state(house: Rig, run: RunRef) -> str:
    return (await house.states(run.id))["delivered"]


async def test_a_waiting_run_goes_on(house: Rig) -> None:
    run = await house.start(parcel, Parcel(id="p-1"))
    assert await delivered_state(house, run) == "WAITING"
    given = await give(house, Delivered(id="p-1", weight=7))
    assert (given.matched, given.repeated, given.key) == (1, False, "p-1")
    assert await resume(house) == 1
    states = await house.states(run.id)
    assert (states["delivered"], states["thank"]) == ("SUCCEEDED", "PENDING")
    assert json.loads(await house.value("SELECT result FROM milepost.step WHERE name = 'delivered'")) == {
        "id": "p-1",
        "weight": 7,
    }


async def test_a_signal_that_comes_first_is_kept_for_the_wait(house: Rig) -> None:
    assert (await give(house, Delivered(id="p-1"))).matched == 0
    run = await house.start(parcel, Parcel(id="p-1"))
    assert await house.value("SELECT state FROM milepost.wait WHERE run_id = $1", run.id) == "MATCHED"


async def test_nothing_is_left_of_a_transaction_that_rolls_back(house: Rig) -> None:
    run = await house.start(parcel, Parcel(id="p-1"))
    with pytest.raises(ZeroDivisionError):
        async with house.database.pool.acquire() as connection, connection.transaction():
            assert (await house.service.signal(connection, Delivered(id="p-1"))).matched == 1
            raise ZeroDivisionError
    assert await house.value("SELECT count(*) FROM milepost.signal") == 0
    assert await house.outgoing("milepost.resume") == []
    assert await delivered_state(house, run) == "WAITING"


async def test_the_same_event_id_twice_does_nothing_the_second_time(house: Rig) -> None:
    first = await give(house, Delivered(id="p-1"), event_id="e-1")
    second = await give(house, Delivered(id="p-1"), event_id="e-1")
    assert (first.repeated, second.repeated, second.id) == (False, True, first.id)
    assert (await give(house, Delivered(id="p-1"), event_id="e-1", tenant="acme")).repeated is False
    await house.start(parcel, Parcel(id="p-1"))
    assert await house.value("SELECT count(*) FROM milepost.signal") == 2


async def test_an_expired_signal_never_matches(house: Rig) -> None:
    await give(house, Delivered(id="p-1"), keep=timedelta(hours=1))
    await house.clock("2 hours")
    await give(house, Delivered(id="p-2"))
    run = await house.start(parcel, Parcel(id="p-1"))
    assert await delivered_state(house, run) == "WAITING"


async def test_a_session_of_sqlalchemy_and_its_rollback(house: Rig) -> None:
    engine = create_async_engine(house.service.settings.sqlalchemy_url)
    try:
        async with engine.connect() as connection:
            transaction = await connection.begin()
            await house.service.signal(connection, Delivered(id="p-1"))
            await transaction.rollback()
        async with engine.begin() as connection:
            await connection.execute(text("SELECT 1"))
            await house.service.signal(connection, Delivered(id="p-2"))
    finally:
        await engine.dispose()
    rows = await house.database.pool.fetch("SELECT key FROM milepost.signal")
    assert [row["key"] for row in rows] == ["p-2"]


async def test_another_isolation_level_is_refused(house: Rig) -> None:
    async with house.database.pool.acquire() as connection:
        async with connection.transaction(isolation="serializable"):
            with pytest.raises(UsageError, match="MP307"):
                await house.service.signal(connection, Delivered(id="p-1"))
        with pytest.raises(UsageError, match="MP301"):
            await house.service.signal(connection, Delivered(id="p-1"))


@pytest.mark.parametrize(
    ("event", "more"),
    [
        (Unmatchable(id="x"), {}),
        (Delivered(id=""), {}),
        (Delivered(id="a\x00"), {}),
        (Delivered(id="x"), {"keep": timedelta(0)}),
        (Delivered(id="x"), {"tenant": "\ud800"}),
    ],
)
async def test_what_nothing_could_match_is_refused(house: Rig, event: Event, more: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="MP456"):
        await give(house, event, **more)
    assert await house.value("SELECT count(*) FROM milepost.signal") == 0


def test_the_list(
    database_url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILEPOST_DATABASE_URL", database_url)
    assert main.run(["signals", "list"]) == 0
    assert "no signals yet" in capsys.readouterr().out
    insert = (
        "INSERT INTO milepost.signal (id, source, event_id, type, key, payload, received_at, expires_at, run_id, "
        "matched_at) VALUES (gen_random_uuid(), 's', '{0}', '{1}', '{0}', '{{}}', now() - interval '6 hours', "
        "now() + interval '{2}', {3}, {4})"
    )
    asyncio.run(
        execute(
            database_url,
            insert.format("T-9", "carrier.delivered", "1 day 5 minutes", "NULL", "NULL"),
            insert.format("T-8", "carrier.delivered", "-1 hour", "NULL", "NULL"),
            insert.format("T-7", "carrier.delivered", "1 day", "gen_random_uuid()", "now()"),
            insert.format("T-6", "carrier.lost", "1 day", "NULL", "NULL"),
        )
    )
    assert main.run(["signals", "list", "--unmatched", "--type", "carrier.delivered", "--json"]) == 0
    items = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {item["key"]: item["state"] for item in items} == {"T-9": "unmatched", "T-8": "expired"}
    assert all(abs(item["age_s"] - 6 * 3600) < 600 for item in items)
    assert main.run(["signals", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5
    assert lines[0].split() == ["type", "key", "state", "age", "expires", "run"]
    assert ["carrier.delivered", "T-9", "unmatched", "6h", "in", "1d"] in [line.split() for line in lines]
    assert main.run(["signals", "list", "--type", "other"]) == 0
    assert "no such signals" in capsys.readouterr().out
