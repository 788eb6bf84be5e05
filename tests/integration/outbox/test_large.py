"""Rows around the client's own batch size go out whole, where their topic takes them."""

from __future__ import annotations

from milepost.outbox.encode import BATCH_BYTES
from milepost.outbox.packing import headers_of
from milepost.outbox.records import size_alone, sized

from tests.support.outbox import (
    Noted,
    arrived,
    connected,
    insert_row,
    make_topic,
    publish_noted,
    relaying,
    until_sent,
)

HEADERS = '{"ce_id": "00000000-0000-7000-8000-000000000000"}'


def value_of(size: int, key: str) -> bytes:
    """A value that makes a batch of one record of exactly so many bytes."""
    value = b"x" * size
    over = size_alone(sized(key.encode()), value, headers_of(HEADERS)) - size
    value = value[over:]
    assert size_alone(sized(key.encode()), value, headers_of(HEADERS)) == size
    return value


async def test_below_at_and_above_the_batch_size(database_url: str, kafka: str, topic_prefix: str) -> None:
    topic = f"{topic_prefix}.large"
    await make_topic(kafka, topic, partitions=1, max_message_bytes="2100000")
    sizes = [BATCH_BYTES - 1, BATCH_BYTES, BATCH_BYTES + 1, 2_099_999, 2_100_000, 2_100_001]
    async with connected(database_url) as (connection,):
        events = {}
        for size in sizes:
            events[size] = await insert_row(
                connection, topic, key="k", value=value_of(size, "k"), headers=HEADERS
            )
            await publish_noted(connection, topic, [Noted(key="k", n=size)])
        async with relaying(database_url, kafka):
            await until_sent(connection, within=60)
            found = (await arrived(kafka, topic)).all()
        large = [len(record.value) for record in found if record.value[:1] == b"x"]
        assert large == [len(value_of(size, "k")) for size in sizes[:-1]], "whole, once each, in their order"
        assert len(found) == 2 * len(sizes) - 1
        letters = await connection.fetch("SELECT event_id, code FROM milepost.dead_letter")
        assert [tuple(letter) for letter in letters] == [(events[2_100_001], "TOO_LARGE")]
