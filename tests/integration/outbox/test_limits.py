"""What a broker will never take is put aside at once, with the reason, and delays nothing else."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import MessageSizeTooLargeError
from milepost.outbox.packing import headers_of
from milepost.outbox.producer import Producer
from milepost.outbox.records import size_alone, sized
from milepost.schemas.errors import UsageError

from tests.support.outbox import (
    Loose,
    Noted,
    Running,
    alter_topic,
    arrived,
    connected,
    event_id,
    insert_row,
    make_topic,
    make_topics,
    publish_noted,
    relaying,
    until_arrived,
    until_sent,
)
from tests.support.waiting import until

LIMIT = 5000


async def letters(connection: Any) -> list[tuple[UUID, str, str, int]]:
    found = await connection.fetch("SELECT * FROM milepost.dead_letter ORDER BY n")
    return [(row["event_id"], row["code"], row["message"], row["attempts"]) for row in found]


@pytest.fixture(params=["known", "hidden"])
def limits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whether Kafka tells a topic's settings; where it does not, only its refusals do."""

    async def nothing(*_: object) -> dict[str, Any]:
        return {}

    if request.param == "hidden":
        monkeypatch.setattr(Producer, "describe", nothing)
    return str(request.param)


def record_of(size: int, key: str) -> tuple[bytes, str]:
    """A value that makes a batch of one record of exactly so many bytes, with its key and headers."""
    headers = '{"ce_id": "00000000-0000-7000-8000-000000000000", "x": "gr\u00fcn"}'
    value = b"x" * size
    while size_alone(sized(key.encode()), value, headers_of(headers)) > size:
        value = value[1:]
    assert size_alone(sized(key.encode()), value, headers_of(headers)) == size
    return value, headers


async def test_at_the_limit_and_one_byte_over(
    database_url: str, kafka: str, topic_prefix: str, limits: str
) -> None:
    topic = f"{topic_prefix}.limit"
    await make_topic(kafka, topic, partitions=1, max_message_bytes=str(LIMIT))
    async with connected(database_url) as (connection,):
        mates = await publish_noted(connection, topic, [Noted(key=f"k{n}", n=n) for n in range(30)])
        made = {}
        for over in (-1, 0, 1):
            value, headers = record_of(LIMIT + over, f"limit{over}")
            event = await insert_row(connection, topic, key=f"limit{over}", value=value, headers=headers)
            made[over] = (event, value)
            mates += await publish_noted(connection, topic, [Noted(key=f"after{over}")])
        async with relaying(database_url, kafka):
            await until_sent(connection)
            found = (await arrived(kafka, topic)).all()
        large = [record for record in found if record.value[:1] == b"x"]
        assert [record.value for record in large] == [made[-1][1], made[0][1]], "up to the limit, once each"
        assert sorted(event_id(record) for record in found if record not in large) == sorted(mates)
        ((event, code, message, attempts),) = await letters(connection)
        assert (event, code, attempts) == (made[1][0], "TOO_LARGE", 1)
        assert str(LIMIT + 1) in message
        assert limits == "hidden" or str(LIMIT) in message
    producer = AIOKafkaProducer(bootstrap_servers=kafka)
    await producer.start()
    pairs = [("ce_id", b"0" * 36), ("x", "grün".encode())]
    await producer.send_and_wait(topic, made[0][1], key=b"limit0", headers=pairs)
    with pytest.raises(MessageSizeTooLargeError):
        await producer.send_and_wait(topic, made[1][1], key=b"limit1", headers=pairs)
    await producer.stop()


async def test_a_record_without_a_key_on_a_compacted_topic(
    database_url: str, kafka: str, topic_prefix: str, limits: str
) -> None:
    topic = f"{topic_prefix}.compacted"
    await make_topic(kafka, topic, partitions=1, cleanup_policy="compact")
    async with connected(database_url) as (connection,):
        ids = await publish_noted(connection, topic, [Noted(key="a"), Noted(key="b")])
        (keyless,) = await publish_noted(connection, topic, [Loose()])
        ids += await publish_noted(connection, topic, [Noted(key="c")])
        async with relaying(database_url, kafka):
            await until_sent(connection)
            assert (await until_arrived(kafka, topic, ids)).ids() == ids, "each once"
            ((event, code, _, _),) = await letters(connection)
            assert (event, code) == (keyless, "KEY_MISSING" if limits == "known" else "REFUSED")
            if limits == "known":
                await until(
                    lambda: connection.fetchval(
                        "SELECT compacted FROM milepost.topic WHERE name = $1", topic
                    ),
                    what="the topic's row",
                )
                with pytest.raises(UsageError, match="MP314"):
                    await publish_noted(connection, topic, [Loose()])


async def test_rows_that_publish_did_not_write(database_url: str, kafka: str, topic_prefix: str) -> None:
    topic = f"{topic_prefix}.rows"
    await make_topics(kafka, topic, partitions=1)
    async with connected(database_url) as (connection,):
        bad = [await insert_row(connection, topic, headers=headers) for headers in ("[1]", '"x"', "null")]
        good = [
            await insert_row(connection, topic, key=None),
            await insert_row(connection, topic, value=None),
        ]
        wrong = await insert_row(connection, f"{topic_prefix} no topic's name")
        async with relaying(database_url, kafka) as running:
            await until_sent(connection)
            assert (await arrived(kafka, topic)).ids() == good
            assert running.relay.health().ok
        found = await letters(connection)
        assert [(event, code) for event, code, *_ in found] == [
            *((event, "ROW_INVALID") for event in bad),
            (wrong, "ROW_INVALID"),
        ]


async def test_many_bad_rows_at_the_head(database_url: str, kafka: str, topic_prefix: str) -> None:
    topic = f"{topic_prefix}.head"
    await make_topic(kafka, topic, max_message_bytes=str(LIMIT))
    async with connected(database_url) as (connection,):
        for n in range(500):
            await insert_row(connection, topic, key=f"bad{n}", value=b"x" * 6000)
        ids = await publish_noted(connection, topic, [Noted(key=f"k{n % 9}", n=n) for n in range(1000)])
        async with relaying(database_url, kafka):
            found = await until_arrived(kafka, topic, ids)
            await until_sent(connection)
            assert found.order() == {f"k{n}".encode(): ids[n::9] for n in range(9)}
            assert len(found.ids()) == len(ids), "each once"
            assert {(code, attempts) for _, code, _, attempts in await letters(connection)} == {
                ("TOO_LARGE", 1)
            }
            written = await connection.fetchval("SELECT max(n) FROM milepost.outbox_position")
        assert written < 20, "nothing is tried over and over"


async def test_what_kafka_says_of_topics_is_kept_up_to_date(
    database_url: str, kafka: str, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("milepost.outbox.leader._TOPICS", 0.2)
    topic, declared = f"{topic_prefix}.told", f"{topic_prefix}.declared"
    await make_topic(kafka, topic, max_message_bytes="7000", cleanup_policy="compact")
    await make_topic(kafka, declared)

    async with connected(database_url) as (connection,):

        async def rows(running: Running) -> dict[str, tuple[Any, ...]]:
            assert not running.task.done()
            found = await connection.fetch("SELECT * FROM milepost.topic")
            return {row["name"]: (row["compacted"], row["max_bytes"], row["on_park"]) for row in found}

        async with relaying(database_url, kafka, hold_topics=f"other, {topic}", topics=[declared]) as running:
            await publish_noted(connection, topic, [Noted(key="k")])
            first = {topic: (True, 7000, "hold"), declared: (False, 1_048_588, "continue")}
            await until(lambda: until_equal(rows(running), first), what="both topics to be known")
            with pytest.raises(UsageError, match=r"MP312.*7000"):
                await publish_noted(connection, topic, [Noted(key="k", text="x" * 7001)])
            await alter_topic(kafka, topic, max_message_bytes="8000")
            second = {**first, topic: (False, 8000, "hold")}
            await until(lambda: until_equal(rows(running), second), what="the new settings")
            await publish_noted(connection, topic, [Noted(key="k", text="x" * 7001)])
            await until_sent(connection)
        async with relaying(database_url, "127.0.0.1:1") as running:
            await until(lambda: "Kafka" in running.relay.health().detail, what="Kafka to be missed")
            assert set(await rows(running)) == {topic, declared}, "what is known stays while Kafka is away"


async def until_equal(found: Any, wanted: object) -> bool:
    return bool(await found == wanted)
