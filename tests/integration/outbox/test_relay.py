"""The relay on real servers: what was committed arrives, once it was committed, in its key's order."""

from __future__ import annotations

import asyncio
import json
import signal

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from milepost.outbox.log import outbox_state
from milepost.outbox.publish import publish
from milepost.outbox.relay import LONGEST_LEASE
from milepost.schemas.errors import UsageError
from milepost.streams.topics import ensure_topics

from tests.support.engine import settings_for
from tests.support.outbox import (
    Loose,
    Noted,
    arrived,
    connected,
    event_id,
    make_topics,
    publish_noted,
    relay_processes,
    relaying,
    until_arrived,
    until_leads,
    until_sent,
)
from tests.support.waiting import until


async def test_rows_from_before_and_after_it_started(
    database_url: str, kafka: str, topic_prefix: str
) -> None:
    topic = f"{topic_prefix}.notes"
    await make_topics(kafka, topic)
    async with connected(database_url) as (connection,):
        ids = await publish_noted(connection, topic, [Noted(key=f"k{n % 7}", n=n) for n in range(200)])
        async with relaying(database_url, kafka) as running:
            await until_sent(connection)
            for n in range(5):
                ids += await publish_noted(
                    connection, topic, [Noted(key="k1", n=n), Loose(n=n)], headers={"x": "ü"}
                )
            await until_sent(connection)
            await until(
                lambda: "leader epoch 1" in running.relay.health().detail, what="health to name the leader"
            )
            assert running.relay.health().ok
            left = "SELECT max(expires_at) - clock_timestamp() FROM milepost.outbox_lease"
            assert await connection.fetchval(left) <= LONGEST_LEASE < settings_for(database_url).lease
        found = await arrived(kafka, topic)
        assert sorted(found.ids()) == sorted(ids), "each exactly once"
        expected: dict[bytes | None, list[object]] = {}
        for row in await connection.fetch(
            "SELECT id, aggregateid, payload, headers FROM milepost.outbox ORDER BY seq"
        ):
            if row["aggregateid"] is not None:
                expected.setdefault(row["aggregateid"].encode(), []).append(row["id"])
        order = found.order()
        order.pop(None)
        assert order == expected
        stored = {row["id"]: row for row in await connection.fetch("SELECT * FROM milepost.outbox")}
        for record in found.all():
            headers = {name: value.decode() for name, value in record.headers}
            row = stored[event_id(record)]
            assert (record.value, headers) == (row["payload"], json.loads(row["headers"]))
        state = await outbox_state(connection)
        assert (state.owner, state.lag) == (None, 0), "a clean stop gives the lease back"


async def test_the_partition_is_that_of_a_plain_send(
    database_url: str, kafka: str, topic_prefix: str
) -> None:
    topic, plain = f"{topic_prefix}.relayed", f"{topic_prefix}.plain"
    await make_topics(kafka, topic, plain, partitions=5)
    keys = [f"key-{n}" for n in range(40)]
    producer = AIOKafkaProducer(bootstrap_servers=kafka)
    await producer.start()
    sent = {
        key.encode(): (await producer.send_and_wait(plain, b"x", key=key.encode())).partition for key in keys
    }
    await producer.stop()
    async with connected(database_url) as (connection,), relaying(database_url, kafka):
        await publish_noted(connection, topic, [Noted(key=key) for key in keys])
        await until_sent(connection)
    assert {record.key: record.partition for record in (await arrived(kafka, topic)).all()} == sent


async def test_nothing_before_the_commit_and_nothing_after_a_rollback(
    database_url: str, kafka: str, topic_prefix: str
) -> None:
    topic = f"{topic_prefix}.visible"
    await make_topics(kafka, topic)
    async with connected(database_url, 3) as (opened, undone, other), relaying(database_url, kafka):
        await opened.execute("CREATE TABLE state (id text)")
        transaction, doomed = opened.transaction(), undone.transaction()
        await transaction.start()
        await doomed.start()
        await opened.execute("INSERT INTO state VALUES ('o-1')")
        (early,) = await publish(opened, Noted(key="o-1"), topic=topic)
        await publish(undone, Noted(key="o-1"), topic=topic)
        await doomed.rollback()
        (marker,) = await publish_noted(other, topic, [Noted(key="marker")])
        assert (await until_arrived(kafka, topic, [marker])).ids() == [marker]
        await transaction.commit()
        found = await until_arrived(kafka, topic, [early])
        assert await other.fetchval("SELECT count(*) FROM state") == 1, "never an event without its state"
        assert sorted(found.ids()) == sorted([early, marker])


async def test_a_listener_that_hangs_delays_nobody(database_url: str, kafka: str, topic_prefix: str) -> None:
    """Nothing is notified: a queue that a forgotten listener keeps from being emptied stays as it is."""
    topic = f"{topic_prefix}.quiet"
    await make_topics(kafka, topic)
    async with connected(database_url, 9) as (listener, *writers), relaying(database_url, kafka):
        await listener.execute("LISTEN milepost")
        hanging = listener.transaction()
        await hanging.start()
        await listener.fetchval("SELECT 1")
        before = await writers[0].fetchval("SELECT pg_notification_queue_usage()")
        many = [
            [publish_noted(writer, topic, [Noted(key=f"k{k}", n=n)]) for k, writer in enumerate(writers)]
            for n in range(7)
        ]
        ids = [event for batch in many for (event,) in await asyncio.gather(*batch)]
        assert sorted((await until_arrived(kafka, topic, ids)).ids()) == sorted(ids)
        assert await writers[0].fetchval("SELECT pg_notification_queue_usage()") == before
        await hanging.rollback()


async def test_a_missing_topic_delays_no_other(database_url: str, kafka: str, topic_prefix: str) -> None:
    missing, there = f"{topic_prefix}.missing", f"{topic_prefix}.there"
    await make_topics(kafka, there)
    async with connected(database_url, 2) as (connection, early), relaying(database_url, kafka):
        opened = early.transaction()
        await opened.start()
        later = await publish_noted(early, missing, [Noted(key=f"k{n % 2}", n=n) for n in range(5, 9)])
        waiting = await publish_noted(connection, missing, [Noted(key=f"k{n % 2}", n=n) for n in range(5)])
        ids = await publish_noted(connection, there, [Noted(key="k", n=n) for n in range(50)])
        assert (await until_arrived(kafka, there, ids, within=10)).ids() == ids
        await until_sent(connection)
        with pytest.raises(UsageError, match=f"MP313.*{missing}"):
            await publish_noted(connection, missing, [Noted(key="k0")])
        await opened.commit()
        waiting += later
        await until_sent(connection)
        letters = await connection.fetch("SELECT * FROM milepost.dead_letter ORDER BY n")
        assert [(row["event_id"], row["code"], row["scope"], row["status"]) for row in letters] == [
            (event, "TOPIC_MISSING", "relay:topic", "OPEN") for event in waiting
        ]
        assert [Noted.model_validate_json(row["value"]).n for row in letters] == list(range(9))
        assert await connection.fetchval("SELECT count(*) FROM milepost.hold WHERE topic = $1", missing) == 1
        await make_topics(kafka, missing, partitions=2)
        found = await until_arrived(kafka, missing, waiting)
        by_number = await connection.fetch("SELECT id, aggregateid FROM milepost.outbox ORDER BY seq")
        assert found.order() == {
            key.encode(): [row["id"] for row in by_number if row["aggregateid"] == key]
            for key in ("k0", "k1")
        }
        await until(
            lambda: connection.fetchval("SELECT NOT EXISTS (SELECT FROM milepost.hold)"),
            what="the hold to go",
        )
        assert (
            await connection.fetchval("SELECT count(*) FROM milepost.dead_letter WHERE status = 'RESOLVED'")
            == 9
        )
        late = await publish_noted(connection, missing, [Noted(key="k0", n=9)])
        assert (await until_arrived(kafka, missing, late)).order()[b"k0"][-1:] == late


@pytest.mark.parametrize("policy", ["continue", "hold"])
async def test_a_row_too_large_is_parked_at_once(
    database_url: str, kafka: str, topic_prefix: str, policy: str
) -> None:
    topic = f"{topic_prefix}.small"
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    await admin.create_topics([NewTopic(topic, 2, 1, topic_configs={"max.message.bytes": "20000"})])
    await admin.close()
    async with connected(database_url) as (connection,):
        small = [Noted(key=f"k{n % 3}", n=n, text="x" * 900) for n in range(200)]
        ids = await publish_noted(connection, topic, small)
        (large,) = await publish_noted(connection, topic, [Noted(key="k0", text="x" * 30_000)])
        after = await publish_noted(connection, topic, [Noted(key="k0", n=1), Noted(key="k1", n=1)])
        behind = after[:1] if policy == "hold" else []
        async with relaying(database_url, kafka, hold_topics=topic if policy == "hold" else ""):
            found = await until_arrived(kafka, topic, [*ids, after[1]])
            await until_sent(connection)
            found = await arrived(kafka, topic)
        assert set(found.ids()) == {*ids, *after} - set(behind)
        assert found.order()[b"k1"] == [*ids[1::3], after[1]]
        letters = await connection.fetch(
            "SELECT event_id, code, message FROM milepost.dead_letter ORDER BY seq"
        )
        assert [(row["event_id"], row["code"]) for row in letters] == [
            (large, "TOO_LARGE"),
            *((event, "KEY_HELD") for event in behind),
        ]
        assert "20000" in letters[0]["message"] and "30" in letters[0]["message"]
        held = await connection.fetch(
            "SELECT key FROM milepost.hold WHERE scope = 'relay:key' AND topic = $1", topic
        )
        assert [row["key"] for row in held] == ([b"k0"] if policy == "hold" else [])


async def test_a_copy_of_another_database_sends_nothing(
    database_url: str, kafka: str, topic_prefix: str
) -> None:
    topic = f"{topic_prefix}.copy"
    await make_topics(kafka, topic)
    async with connected(database_url) as (connection,):
        await connection.execute(
            "INSERT INTO milepost.outbox_position VALUES ('outbox', 3, 1, '900000:900000:', '900000:900000:', 0, 4711)"
        )
        await publish_noted(connection, topic, [Noted(key="k")])
        async with relaying(database_url, kafka) as running:
            await until(lambda: not running.relay.health().ok, what="health to turn red")
            assert "MP411" in running.relay.health().detail
        assert (await arrived(kafka, topic)).all() == []
        assert (await outbox_state(connection)).owner is None


async def test_a_standby_takes_over_after_a_kill(database_url: str, kafka: str, topic_prefix: str) -> None:
    topic = f"{topic_prefix}.standby"
    await make_topics(kafka, topic)
    async with connected(database_url) as (connection,):
        async with relay_processes(database_url, kafka, 2) as processes:
            leader = await until_leads(connection, processes)
            ids = await publish_noted(connection, topic, [Noted(key="k", n=0)])
            await until_sent(connection)
            await leader.end(signal.SIGKILL)
            ids += await publish_noted(connection, topic, [Noted(key="k", n=1)])
            found = await until_arrived(kafka, topic, ids)
            assert found.order() == {b"k": ids}
            second = await until_leads(connection, processes)
            assert second is not leader
            assert await second.end(signal.SIGTERM) == 0
        assert (await outbox_state(connection)).owner is None


async def test_the_database_goes_away_and_comes_back(
    database_url: str, kafka: str, topic_prefix: str
) -> None:
    topic = f"{topic_prefix}.away"
    await ensure_topics(kafka, [topic])
    async with connected(database_url) as (connection,), relaying(database_url, kafka) as running:
        ids = await publish_noted(connection, topic, [Noted(key="k", n=0)])
        await until_sent(connection)
        for n in range(1, 4):
            await connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            ids += await publish_noted(connection, topic, [Noted(key="k", n=n)])
            await until_sent(connection)
        assert not running.task.done()
    assert (await arrived(kafka, topic)).order() == {b"k": ids}
