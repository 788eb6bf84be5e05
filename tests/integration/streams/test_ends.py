"""Since when records wait to be read, and what `doctor` makes of one on a partition that was quiet."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from milepost.streams.ends import end_offsets, written_at

from tests.support.console_calls import Call, _no_environment, execute, lines, milepost, near_kafka
from tests.support.talk import make_topic, send

__all__ = ["_no_environment", "milepost", "near_kafka"]


async def test_when_the_first_record_from_a_place_on_was_written(kafka: str, topic_prefix: str) -> None:
    topic, began = f"{topic_prefix}.read", datetime.now(UTC) - timedelta(seconds=1)
    await make_topic(kafka, topic)
    await send(kafka, topic, b"one")
    await send(kafka, topic, b"two")
    assert await end_offsets(kafka, {topic}) == {(topic, 0): 2}
    found = await written_at(kafka, [(topic, 0, 0), (topic, 0, 1), (topic, 0, 2)])
    assert set(found) == {(topic, 0, 0), (topic, 0, 1)}, "nothing is at the end yet"
    assert began < found[topic, 0, 0] <= found[topic, 0, 1] < datetime.now(UTC) + timedelta(seconds=1)
    assert await written_at(kafka, []) == {}
    assert await written_at("127.0.0.1:1", [(topic, 0, 0)]) == {}


def test_doctor_counts_from_when_the_record_was_written(
    milepost: Call, database_url: str, near_kafka: str, topic_prefix: str
) -> None:
    async def fill() -> None:
        await make_topic(near_kafka, topic_prefix)
        await send(near_kafka, topic_prefix, b"one")

    asyncio.run(fill())
    execute(
        database_url,
        "INSERT INTO milepost.consumer_position (consumer, topic, partition, next_offset, at)"
        f" VALUES ('books', '{topic_prefix}', 0, 0, milepost.clock() - interval '15 minutes')",
        "SELECT 1",
    )
    (found,) = [item for item in lines(milepost("doctor", "--json")[1]) if item["check"] == "consumers"]
    assert found["severity"] != "error" and "1 record behind" in found["text"]
    assert "has waited to be read for" in found["text"]
