"""milepost.publish() in the database: triggers, roles, defaults, bytes, and its own refusals."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from milepost.outbox.model import event_row, lock_numbers

from tests.support.outbox import CLOCK, IDS, Noted, connected

TRIGGER = """
CREATE TABLE orders (id text PRIMARY KEY, amount numeric NOT NULL);
CREATE FUNCTION order_placed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM milepost.publish('orders', 'shop.order-placed',
                             jsonb_build_object('order_id', NEW.id, 'amount', NEW.amount), key => NEW.id);
    RETURN NEW;
END $$;
CREATE TRIGGER order_placed AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION order_placed();
"""


@pytest.fixture
async def connection(database_url: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    async with connected(database_url) as (found,):
        yield found


async def rows(connection: asyncpg.Connection[Any]) -> list[asyncpg.Record]:
    await connection.execute("RESET ROLE")
    return await connection.fetch("SELECT *, headers::text AS header_text FROM milepost.outbox ORDER BY seq")


async def test_a_trigger_publishes_with_its_row(connection: asyncpg.Connection[Any]) -> None:
    await connection.execute(TRIGGER)
    await connection.execute(
        "INSERT INTO orders SELECT 'o-' || n, n / 10.0 FROM generate_series(1, 100) AS n"
    )
    with pytest.raises(asyncpg.UniqueViolationError):
        await connection.execute("INSERT INTO orders VALUES ('new', 1), ('o-1', 2)")
    found = await rows(connection)
    assert [row["aggregateid"] for row in found] == [f"o-{n}" for n in range(1, 101)]
    assert json.loads(found[14]["payload"]) == {"order_id": "o-15", "amount": 1.5}


async def test_who_may_only_call_it_can_publish_and_nothing_else(
    connection: asyncpg.Connection[Any], database_url: str
) -> None:
    role = f"web_{database_url.rpartition('_')[2]}"
    await connection.execute(f"CREATE ROLE {role}; GRANT USAGE ON SCHEMA milepost TO {role}")
    try:
        await connection.execute(f"SET ROLE {role}")
        call = "SELECT milepost.publish('orders', 'shop.order', '{}', 'o-1', lock_key => true)"
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute(call)
        await connection.execute("RESET ROLE")
        signature = await connection.fetchval(
            "SELECT oid::regprocedure::text FROM pg_proc WHERE proname = 'publish'"
        )
        await connection.execute(f"GRANT EXECUTE ON FUNCTION {signature} TO {role}")
        await connection.execute(f"SET ROLE {role}")
        await connection.execute(call)
        for other in ("SELECT FROM milepost.outbox", "INSERT INTO milepost.topic (name) VALUES ('t')"):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.execute(other)
        assert len(await rows(connection)) == 1
        await connection.execute("SET ROLE milepost_runtime")
        await connection.execute(call)
        assert len(await rows(connection)) == 2
    finally:
        await connection.execute(f"RESET ROLE; DROP OWNED BY {role}; DROP ROLE {role}")


async def test_a_search_path_of_the_callers_changes_nothing(connection: asyncpg.Connection[Any]) -> None:
    await connection.execute(
        "CREATE SCHEMA evil; CREATE FUNCTION evil.lower(text) RETURNS text LANGUAGE sql AS 'SELECT 1/0 || $1';"
        "CREATE FUNCTION evil.length(text) RETURNS integer LANGUAGE sql AS 'SELECT 1/0';"
        "SET search_path = evil, pg_catalog"
    )
    await connection.execute(
        """SELECT milepost.publish('orders', 'shop.order', '{}', 'k', headers => '{"x": "y"}', lock_key => true)"""
    )
    assert len(await rows(connection)) == 1


async def test_everything_may_be_said(connection: asyncpg.Connection[Any]) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    wanted = UUID("01a229a3-0a02-78fd-a351-aa23f707da47")
    found = await connection.fetchval(
        "SELECT milepost.publish(topic => 'orders', type => 'shop.order.placed', body => $1,"
        " content_type => 'text/plain', key => 'k', tenant => 'acme', version => 3, source => '/shop',"
        " correlation_id => 'c', causation_id => 'e', traceparent => $2, tracestate => 'a=b', id => $3)",
        b"\x00\xff",
        trace,
        wanted,
    )
    (row,) = await rows(connection)
    headers = json.loads(row["header_text"])
    assert found == row["id"] == wanted and row["payload"] == b"\x00\xff" and row["tenant"] == "acme"
    headers.pop("ce_time")
    assert headers == {
        "ce_specversion": "1.0",
        "ce_id": str(wanted),
        "ce_source": "/shop",
        "ce_type": "shop.order.placed",
        "ce_eventversion": "3",
        "content-type": "text/plain",
        "ce_tenant": "acme",
        "ce_correlationid": "c",
        "ce_causationid": "e",
        "traceparent": trace,
        "tracestate": "a=b",
    }


REFUSED = [
    ("'or ders', 'shop.order', '{}'", "MP106"),
    ("NULL, 'shop.order', '{}'", "MP106"),
    ("'orders', 'Shop', '{}'", "MP106"),
    ("'orders', 'milepost.work', '{}'", "MP106"),
    ("'orders', 'shop.order'", "MP317"),
    ("'orders', 'shop.order', '{}', body => '{}'", "MP317"),
    ("'orders', 'shop.order', '{}', tombstone => true, key => 'k'", "MP317"),
    ("'orders', 'shop.order', tombstone => true", "MP345"),
    ("'orders', 'shop.order', tombstone => true, key => ''", "MP345"),
    ("'orders', 'shop.order', '{}', headers => '[]'", "MP315"),
    ("'orders', 'shop.order', '{}', headers => '{\"a\": {}}'", "MP315"),
    ("'orders', 'shop.order', '{}', headers => '{\"TraceParent\": \"a\"}'", "MP316"),
    ("'orders', 'shop.order', '{\"a\": 12345}', max_bytes => 11", "MP312"),
    ("'orders', 'shop.order', '{}', version => 0", "MP106"),
    (
        "'shop.work.default', 'shop.order', body => '{\"type\": \"milepost.work\"}',"
        " content_type => ' Application/CloudEvents+json; charset=utf-8'",
        "MP316",
    ),
    ("'orders', 'shop.order', '{}', headers => '{\"a\": \"12345\"}', key => 'k', max_bytes => 14", "MP312"),
    ("'orders', 'shop.order', body => 'no json'", "22P02"),
    ("'orders', 'shop.order', body => '\\x00'", "22021"),
    ("'orders', 'shop.order', '{\"a\": \"\\u0000\"}'", "22P05"),
]


@pytest.mark.parametrize(("arguments", "state"), REFUSED)
async def test_refused(connection: asyncpg.Connection[Any], arguments: str, state: str) -> None:
    with pytest.raises(asyncpg.PostgresError) as raised:
        await connection.fetchval(f"SELECT milepost.publish({arguments})")
    assert raised.value.sqlstate == state
    assert str(raised.value).startswith(state) or not state.startswith("MP"), (
        "the words begin with the code too"
    )
    assert await rows(connection) == []


async def test_ids_are_version_7_and_grow_with_time(connection: asyncpg.Connection[Any]) -> None:
    before = datetime.now(UTC)
    ids = [row[0] for row in await connection.fetch("SELECT milepost.uuid7() FROM generate_series(1, 5000)")]
    assert len(set(ids)) == 5000 and {found.version for found in ids} == {7}
    assert {found.variant for found in ids} == {"specified in RFC 4122"}
    stamps = [found.int >> 80 for found in ids]
    assert stamps == sorted(stamps)
    at = datetime.fromtimestamp(stamps[0] / 1000, UTC)
    assert abs(at - before) < timedelta(minutes=1)
    micros = [(found.int >> 80, found.int >> 64 & 0xFFF) for found in ids]
    assert micros == sorted(micros), "the fraction of a millisecond orders within it"
    assert len({found.int & (1 << 62) - 1 for found in ids}) == 5000


@pytest.mark.parametrize("key", ["k", "o-1", "ü\U0001f600", "a:b:c", "x" * 500, " "])
async def test_its_locks_are_those_of_python(connection: asyncpg.Connection[Any], key: str) -> None:
    row = event_row(Noted(key=key), ids=IDS, clock=CLOCK)
    async with connection.transaction():
        await connection.execute(
            "SELECT milepost.publish('noted', 'test.noted', '{}', $1, lock_key => true)", key
        )
        held = await connection.fetch(
            "SELECT (classid::bigint << 32) | objid::bigint AS number FROM pg_locks"
            " WHERE locktype = 'advisory' AND pid = pg_backend_pid()"
        )
    assert [lock["number"] for lock in held] == lock_numbers([row])
