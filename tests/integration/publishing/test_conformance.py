"""What every way to publish keeps: with the transaction or not at all, whole, in order, and refused in words."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from milepost import Tombstone
from milepost.outbox.model import event_row
from pydantic import AwareDatetime

from tests.support import servers
from tests.support.outbox import (
    CLOCK,
    IDS,
    Loose,
    Noted,
    arrived,
    connected,
    make_topics,
    relaying,
    until_sent,
)
from tests.support.publishers import WAYS, Unit, reads, repeatable
from tests.support.waiting import until


class Timed(Noted, type="test.timed", topic="timed", key="key", version=3):
    """An event with an instant."""

    at: AwareDatetime


@pytest.fixture(scope="module")
def url(postgres_server: servers.DatabaseServer, database_template: str) -> Iterator[str]:
    """One database for all of these tests; each has a tenant of its own."""
    with servers.fresh_database(postgres_server, database_template) as found:
        yield found


@pytest.fixture
def tenant() -> str:
    return secrets.token_hex(6)


every = pytest.mark.parametrize("way", WAYS)
statements = pytest.mark.parametrize("way", [way for way in WAYS if way != "function"])


async def stored(url: str, tenant: str) -> list[asyncpg.Record]:
    async with connected(url) as (connection,):
        return await connection.fetch(
            "SELECT *, headers::text AS header_text, cmin::text AS command FROM milepost.outbox"
            " WHERE tenant = $1 ORDER BY seq",
            tenant,
        )


async def keys(url: str, tenant: str) -> list[str | None]:
    return [row["aggregateid"] for row in await stored(url, tenant)]


def code_of(error: BaseException) -> str:
    return str(getattr(error, "code", None) or getattr(error, "sqlstate", None))


async def refused(unit: Unit, code: str, *events: Any, **options: Any) -> str:
    """Publish what is refused; SQL's own errors end a transaction, so those are met in a savepoint."""
    with pytest.raises(Exception) as raised:
        async with unit.savepoint():
            await unit.publish(*events, **options)
    assert code_of(raised.value) == code, raised.value
    return str(raised.value)


@every
async def test_with_the_transaction(url: str, tenant: str, way: str) -> None:
    events = (Noted(key="a", n=1, text="ü \U0001f600"), Noted(key="b"), Loose(n=7))
    async with WAYS[way](url) as unit:
        ids = await unit.publish(*events, tenant=tenant, headers={"x": "ü"})
        assert await stored(url, tenant) == [], "nobody sees it before the commit"
    rows = await stored(url, tenant)
    assert [row["id"] for row in rows] == ids and {UUID(str(id)).version for id in ids} == {7}
    for row, event in zip(rows, events, strict=True):
        wanted = event_row(event, ids=IDS, clock=CLOCK, tenant=tenant, headers={"x": "ü"})
        assert (row["topic"], row["aggregatetype"], row["aggregateid"], row["type"]) == (
            *(wanted.topic, wanted.aggregatetype, wanted.aggregateid, wanted.type),
        )
        assert reads(event, row["payload"])
        headers = json.loads(row["header_text"])
        assert headers.pop("ce_id") == str(row["id"])
        assert datetime.fromisoformat(headers.pop("ce_time")).utcoffset() == timedelta(0)
        headers.pop("traceparent", None)
        wanted.headers.pop("ce_id"), wanted.headers.pop("ce_time")
        assert headers == wanted.headers


@every
async def test_gone_with_the_transaction(url: str, tenant: str, way: str) -> None:
    with pytest.raises(RuntimeError, match="no"):
        async with WAYS[way](url) as unit:
            await unit.publish(Noted(key="a"), tenant=tenant, lock_key=True)
            raise RuntimeError("no")
    assert await stored(url, tenant) == []


@every
async def test_a_savepoint_takes_only_its_own_with_it(url: str, tenant: str, way: str) -> None:
    async with WAYS[way](url) as unit:
        await unit.publish(Noted(key="outer"), tenant=tenant)
        with pytest.raises(RuntimeError):
            async with unit.savepoint():
                await unit.publish(Noted(key="inner"), tenant=tenant)
                raise RuntimeError
        async with unit.savepoint():
            await unit.publish(Noted(key="kept"), tenant=tenant)
        await unit.publish(Noted(key="last"), tenant=tenant)
    assert await keys(url, tenant) == ["outer", "kept", "last"]
    rows = await stored(url, tenant)
    assert len({row["xid"] for row in rows}) == 1, "one transaction, as the relay sees it"


@statements
async def test_many_events_are_one_statement(url: str, tenant: str, way: str) -> None:
    async with WAYS[way](url) as unit:
        await unit.publish(*(Noted(key=f"k{n}") for n in range(200)), tenant=tenant)
    rows = await stored(url, tenant)
    assert [row["aggregateid"] for row in rows] == [f"k{n}" for n in range(200)]
    assert len({row["command"] for row in rows}) == 1, "rows of one statement have one command id"


@every
async def test_a_tombstone_has_no_value(url: str, tenant: str, way: str) -> None:
    async with WAYS[way](url) as unit:
        await unit.publish(Noted(key="a"), Tombstone(Noted, key="a"), tenant=tenant)
        await unit.publish(Tombstone(Loose, key="b"), topic="other", tenant=tenant)
    rows = await stored(url, tenant)
    assert [(row["topic"], row["aggregateid"], row["payload"]) for row in rows][1:] == [
        ("noted", "a", None),
        ("other", "b", None),
    ]
    headers = json.loads(rows[1]["header_text"])
    assert headers["milepost-tombstone"] == "true" and "content-type" not in headers
    assert headers["ce_type"] == "test.noted"


@every
async def test_a_refusal_leaves_the_transaction_usable(url: str, tenant: str, way: str) -> None:
    small, gone = f"small-{tenant}", f"gone-{tenant}"
    async with connected(url) as (connection,):
        await connection.execute(
            "INSERT INTO milepost.topic (name, compacted, max_bytes, missing)"
            f" VALUES ('{small}', true, 60, false), ('{gone}', false, NULL, true)"
        )
    try:
        async with WAYS[way](url) as unit:
            await refused(unit, "MP313", Noted(key="a"), topic=gone, tenant=tenant)
            await refused(unit, "MP314", Loose(), topic=small, tenant=tenant)
            words = await refused(
                unit, "MP312", Noted(key="a"), Noted(key="b", text="x" * 60), topic=small, tenant=tenant
            )
            assert "60" in words and small in words
            await refused(unit, "MP312", Noted(key="b", text="x" * 1_000_000), tenant=tenant)
            await refused(unit, "MP316", Noted(key="a"), headers={"CE_id": "1"}, tenant=tenant)
            await refused(unit, "MP316", Noted(key="a"), headers={"milepost-x": "1"}, tenant=tenant)
            await refused(unit, "MP315", Noted(key="a"), headers={"x": 1}, tenant=tenant)
            await unit.publish(Noted(key="good"), topic=small, tenant=tenant)
    finally:
        async with connected(url) as (connection,):
            await connection.execute("DELETE FROM milepost.topic")
    assert await keys(url, tenant) == ["good"]


@statements
async def test_a_refusal_needs_no_savepoint(url: str, tenant: str, way: str) -> None:
    async with connected(url) as (connection,):
        await connection.execute("INSERT INTO milepost.topic (name, max_bytes) VALUES ($1, 5)", tenant)
    async with WAYS[way](url) as unit:
        with pytest.raises(Exception, match="MP312"):
            await unit.publish(Noted(key="a"), topic=tenant, tenant=tenant)
        await unit.publish(Noted(key="good"), tenant=tenant)
    assert await keys(url, tenant) == ["good"]


@every
async def test_a_lock_orders_two_transactions(url: str, tenant: str, way: str) -> None:
    """The second is of another driver, so the lock must be the same one."""
    other = "asyncpg" if way != "asyncpg" else "function"
    key = f"k-{tenant}"
    async with connected(url) as (watch,):
        async with WAYS[other](url) as second:
            async with WAYS[way](url) as first:
                await first.publish(Noted(key=key, n=1), lock_key=True, tenant=tenant)
                task = asyncio.create_task(second.publish(Noted(key=key, n=2), lock_key=True, tenant=tenant))
                await until(
                    lambda: watch.fetchval(
                        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
                        " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
                    ),
                    within=30,
                    what="the second to wait for the lock",
                )
                async with WAYS["asyncpg"](url) as third:
                    await third.publish(Noted(key=f"other-{tenant}"), lock_key=True, tenant=tenant)
            await task
    assert await keys(url, tenant) == [key, f"other-{tenant}", key]
    rows = await stored(url, tenant)
    assert [json.loads(row["payload"])["n"] for row in rows] == [1, 0, 2]


@every
async def test_a_lock_needs_read_committed(url: str, tenant: str, way: str) -> None:
    async with WAYS[way](url, **repeatable(way)) as unit:
        await refused(unit, "MP307", Noted(key="a"), lock_key=True, tenant=tenant)
        await unit.publish(Noted(key="plain"), tenant=tenant)
    assert await keys(url, tenant) == ["plain"]


#: Texts that must come out as they went in: an escape spelled out, a doubled backslash before one, an astral character.
TEXTS = ["\\u0000", "\\\\u0000", "a\\", "\U0001f600\U00010348", "\ud7ff\ue000", 'quo"te', "tab\tnew\nline"]


@every
async def test_texts_that_json_spells_oddly_survive(url: str, tenant: str, way: str) -> None:
    events = [Noted(key=text, text=text, n=n) for n, text in enumerate(TEXTS)]
    async with WAYS[way](url) as unit:
        await unit.publish(*events, tenant=tenant, headers={"text": "".join(TEXTS)})
        await refused(
            unit, "22P05" if way == "function" else "MP311", Noted(key="k", text="a\0"), tenant=tenant
        )
        if way != "function":
            await refused(unit, "MP311", Noted(key="k\ud800"), tenant=tenant)
            await refused(unit, "MP311", Noted(key="k"), headers={"x": "\0"}, tenant=tenant)
    rows = await stored(url, tenant)
    assert [Noted.model_validate_json(row["payload"]) for row in rows] == events
    assert await keys(url, tenant) == TEXTS
    assert json.loads(rows[0]["header_text"])["text"] == "".join(TEXTS)


@every
@pytest.mark.parametrize("zone", ["Asia/Kathmandu", "America/New_York"])
async def test_instants_have_an_offset_whatever_the_session_says(
    url: str, tenant: str, way: str, zone: str
) -> None:
    local = datetime(2026, 3, 8, 2, 30, tzinfo=timezone(timedelta(hours=5, minutes=45)))
    async with WAYS[way](url) as unit:
        await unit.execute(f"SET LOCAL TimeZone = '{zone}'")
        begun = datetime.now(UTC)
        await unit.publish(Timed(key="a", at=local), Timed(key="b", at=local), tenant=tenant)
    rows = await stored(url, tenant)
    for row in rows:
        told = datetime.fromisoformat(json.loads(row["header_text"])["ce_time"])
        assert told.tzinfo is not None and timedelta(0) <= told - begun < timedelta(seconds=60)
        body = json.loads(row["payload"])["at"]
        assert datetime.fromisoformat(body) == local and body.endswith("+05:45")
    assert [row["aggregateid"] for row in rows] == ["a", "b"], "a tie of instants changes no order"


async def test_row_and_record_are_the_same_bytes(url: str, kafka: str, topic_prefix: str) -> None:
    topic = f"{topic_prefix}.all"
    await make_topics(kafka, topic, partitions=2)
    for way in WAYS:
        async with WAYS[way](url) as unit:
            await unit.publish(
                *(Noted(key=f"{way}-{n}", text="ü\U0001f600 \\u0000") for n in range(3)),
                Tombstone(Noted, key=f"{way}-0"),
                topic=topic,
                tenant=topic_prefix,
                headers={"x": "é"},
            )
        with pytest.raises(RuntimeError):
            async with WAYS[way](url) as unit:
                await unit.publish(Noted(key="never"), topic=topic, tenant=topic_prefix)
                raise RuntimeError
    async with relaying(url, kafka), connected(url) as (connection,):
        await until_sent(connection, within=60)
    rows = {row["id"]: row for row in await stored(url, topic_prefix)}
    found = (await arrived(kafka, topic)).all()
    assert len(found) == len(rows) == 4 * len(WAYS)
    for record in found:
        headers = {name: value.decode() for name, value in record.headers}
        row = rows[UUID(headers["ce_id"])]
        assert record.value == row["payload"] and record.key.decode() == row["aggregateid"]
        assert headers == json.loads(row["header_text"])
    stones = [record for record in found if ("milepost-tombstone", b"true") in record.headers]
    assert len(stones) == len(WAYS) and all(record.value is None for record in stones)
