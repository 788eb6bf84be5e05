"""Topics that are missing are made, by however many at once; a broker that is away is said in time."""

from __future__ import annotations

import asyncio

import pytest
from milepost.schemas.errors import ConnectError, StartError
from milepost.schemas.ids import SystemClock
from milepost.streams.topics import PARTITIONS, describe, ensure_topics


async def test_only_missing_topics_are_made(kafka: str, topic_prefix: str) -> None:
    one, two = f"{topic_prefix}.one", f"{topic_prefix}.two"
    assert await ensure_topics(kafka, [one], partitions=2) == [one]
    assert await ensure_topics(kafka, [one, two, two]) == [two]
    assert await ensure_topics(kafka, [one, two]) == []
    assert await describe(kafka, [one, two, f"{topic_prefix}.no"]) == {one: 2, two: PARTITIONS}


async def test_several_at_once_make_a_topic_once(kafka: str, topic_prefix: str) -> None:
    names = [f"{topic_prefix}.{n}" for n in range(3)]
    made = await asyncio.gather(*(ensure_topics(kafka, names) for _ in range(4)))
    assert sorted(name for some in made for name in some) == names


async def test_a_topic_that_was_made_can_be_seen_at_once(kafka: str, topic_prefix: str) -> None:
    async def unseen(n: int) -> set[str]:
        names = {f"{topic_prefix}.{n}.{k}" for k in range(8)}
        await ensure_topics(kafka, names)
        return names - (await describe(kafka, names)).keys()

    # The controller answers before the broker has learned of it, above all when it is busy.
    for round in range(3):
        assert await asyncio.gather(*(unseen(10 * round + n) for n in range(4))) == [set()] * 4


async def test_a_refusal_is_said(kafka: str) -> None:
    with pytest.raises(StartError, match=r"MP206 topic no/name: Kafka refused"):
        await ensure_topics(kafka, ["no/name"])


async def test_a_broker_that_is_away_is_named_in_time() -> None:
    clock = SystemClock()
    began = clock.monotonic()
    with pytest.raises(ConnectError, match=r"MP502 Kafka at 127\.0\.0\.1:1 .*MILEPOST_KAFKA"):
        await ensure_topics("127.0.0.1:1", ["t"], within=2)
    assert clock.monotonic() - began < 8
