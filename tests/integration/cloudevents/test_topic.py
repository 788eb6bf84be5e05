"""The CloudEvents Python SDK on the other side of a real topic, as sender and as reader."""

from __future__ import annotations

import json

from cloudevents.core.bindings.kafka import KafkaMessage, from_kafka, to_binary_event, to_structured_event
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent

from tests.support.inbox import Effects, Sent, consumer_of, opened, reader_of, running, send
from tests.support.outbox import (
    Noted,
    arrived,
    connected,
    make_topics,
    publish_noted,
    relaying,
    until_arrived,
)
from tests.support.waiting import until


async def test_the_sdk_reads_what_the_relay_sends(database_url: str, kafka: str, topic_prefix: str) -> None:
    await make_topics(kafka, topic_prefix)
    async with connected(database_url) as (connection,), relaying(database_url, kafka):
        notes = [Noted(key=f"k-{n}", n=n, text="ü" * n) for n in range(20)]
        ids = await publish_noted(connection, topic_prefix, notes, tenant="acme")
        await until_arrived(kafka, topic_prefix, ids)
    records = (await arrived(kafka, topic_prefix)).all()
    found = {}
    for record in records:
        message = KafkaMessage(dict(record.headers), record.key, record.value)
        event = from_kafka(message, JSONFormat(), CloudEvent)
        found[event.get_id()] = event
    assert [found[str(id)].get_data() for id in ids] == [json.loads(note.model_dump_json()) for note in notes]
    assert {event.get_extension("tenant") for event in found.values()} == {"acme"}
    assert [found[str(id)].get_extension("partitionkey") for id in ids] == [note.key for note in notes]


async def test_a_consumer_takes_what_the_sdk_sends_once(
    database_url: str, kafka: str, topic_prefix: str
) -> None:
    await make_topics(kafka, topic_prefix, partitions=1)

    def message(n: int, *, structured: bool) -> Sent:
        attributes = {
            "id": f"sdk-{n}",
            "source": "/sdk",
            "type": "test.paid",
            "datacontenttype": "application/json",
            "partitionkey": f"o-{n}",
        }
        event = CloudEvent(attributes=attributes, data={"order": f"o-{n}", "amount": n})
        made = to_structured_event(event) if structured else to_binary_event(event)
        key = made.key.encode() if isinstance(made.key, str) else made.key
        return Sent(made.value, list(made.headers.items()), key)

    both = [message(n, structured=structured) for n in range(10) for structured in (False, True)]
    await send(kafka, topic_prefix, both)
    async with opened(database_url) as database:
        effects = Effects(database.pool)
        reader = reader_of(consumer_of(topic_prefix, topic_prefix, effects.apply), database, kafka)
        async with running(reader):

            async def read() -> bool:
                query = "SELECT next_offset FROM milepost.consumer_position"
                return bool(await effects.value(query) == len(both))

            await until(read, within=40, what="all twenty records to be read")
        assert await effects.orders() == [f"o-{n}" for n in range(10)], (
            "the same event in both modes counts once"
        )
        assert await effects.value("SELECT count(*) FROM milepost.dead_letter") == 0
