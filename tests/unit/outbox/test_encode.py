"""Rows become batches: none is dropped, each key keeps its partition and order, what cannot go is named."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aiokafka.partitioner import DefaultPartitioner
from hypothesis import given
from hypothesis import strategies as st
from milepost.outbox.encode import Encoded, Encoder, place_of
from milepost.outbox.position import Row
from milepost.outbox.routing import Routing

HEADERS = json.dumps({"ce_id": "1", "ce_type": "grün"})


def rows(*pairs: tuple[str, str | None, int]) -> list[Row]:
    return [(n, topic, key, b"x" * size, HEADERS) for n, (topic, key, size) in enumerate(pairs, 1)]


async def encode(
    given_rows: list[Row], routing: Routing | None = None, *, batch_bytes: int = 1000, **options: Any
) -> Encoded:
    encoder = Encoder({"a": 3, "b": 1}, routing or Routing(), batch_bytes=batch_bytes, **options)
    return await encoder.encode(given_rows, 1_700_000_000_000)


def sent(encoded: Encoded) -> list[int]:
    return [seq for chain in encoded.batches.values() for batch in chain for seq in batch.seqs]


@given(st.text(max_size=50), st.integers(1, 60))
def test_partitions_are_those_of_a_plain_send(key: str, partitions: int) -> None:
    found, _ = place_of(key, partitions)
    assert found == DefaultPartitioner()(key.encode(), list(range(partitions)), [])


async def test_a_full_batch_drops_nothing() -> None:
    encoded = await encode(rows(*[("b", f"k{n % 5}", 300) for n in range(40)], ("b", "big", 5000)))
    chain = encoded.batches["b", 0]
    assert sent(encoded) == list(range(1, 42))
    assert len(chain) > 5
    assert [batch.record_count() for batch in chain] == [len(batch.seqs) for batch in chain]


async def test_rows_without_key_spread() -> None:
    encoded = await encode(rows(*[("a", None, 10)] * 30))
    assert [len(chain[0].seqs) for chain in encoded.batches.values()] == [10, 10, 10]


async def test_a_null_and_an_empty_value_are_told_apart() -> None:
    encoded = await encode([(1, "b", "k", None, HEADERS), (2, "b", "k", b"", HEADERS)])
    assert encoded.batches["b", 0][0].record_count() == 2


async def test_a_held_topic_holds_back_no_other() -> None:
    routing = Routing(held_topics={"gone": ("TOPIC_MISSING", "topic gone does not exist")})
    encoded = await encode(rows(("gone", "1", 1), ("a", "1", 1), ("gone", None, 1), ("b", "1", 1)), routing)
    assert sorted(sent(encoded)) == [2, 4]
    assert [(letter.seq, letter.code, letter.scope, letter.hold) for letter in encoded.parked] == [
        (1, "TOPIC_MISSING", "relay:topic", True),
        (3, "TOPIC_MISSING", "relay:topic", True),
    ]


async def test_a_topic_being_worked_off_is_sent() -> None:
    routing = Routing(held_topics={"a": ("TOPIC_MISSING", "")})
    assert sent(await encode(rows(("a", "1", 1)), routing, draining="a")) == [1]


@pytest.mark.parametrize("holds", [False, True])
async def test_a_row_too_large_is_parked_with_size_and_limit(holds: bool) -> None:
    routing = Routing(limits={"b": 500}, holding=frozenset({"b"} if holds else ()))
    encoded = await encode(
        rows(("b", "k", 600), ("b", "k", 10), ("b", "other", 10), ("b", None, 700)), routing
    )
    assert sent(encoded) == ([3] if holds else [2, 3])
    first = encoded.parked[0]
    assert (first.seq, first.code, first.scope, first.hold) == (1, "TOO_LARGE", "relay:key", holds)
    assert "6" in first.message and "500" in first.message
    assert [letter.code for letter in encoded.parked[1:]] == (
        ["KEY_HELD", "TOO_LARGE"] if holds else ["TOO_LARGE"]
    )


async def test_batches_stay_under_a_topics_limit() -> None:
    encoded = await encode(rows(*[("b", "k", 100)] * 100), Routing(limits={"b": 5000}), batch_bytes=100_000)
    assert sent(encoded) == list(range(1, 101))
    assert max(batch.size() for batch in encoded.batches["b", 0]) <= 5000


async def test_what_the_broker_refused_alone_is_parked() -> None:
    encoded = await encode(
        rows(("b", "k", 10), ("b", "k", 10)), Routing(unsendable={1: ("TOO_LARGE", "the record is 9 bytes")})
    )
    assert (sent(encoded), encoded.parked[0].message) == ([2], "the record is 9 bytes")
