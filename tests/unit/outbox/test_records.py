"""Batches are byte for byte what aiokafka's own builder writes, and headers what JSON says they are."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import example, given
from hypothesis import strategies as st
from milepost.outbox import encode, packing
from milepost.outbox.packing import headers_of
from milepost.outbox.records import Batch, size_alone, sized

#: Names as ours, and others that would stand before, between and behind them.
NAMES = [
    "ce_id",
    "ce_time",
    "ce_type",
    "ce_source",
    "traceparent",
    "content-type",
    "ce_specversion",
    "ce_correlationid",
    "a",
    "foobar1",
    "a-name-as-long-as-none",
    "grün",
]
#: Values that look like what the reading looks for.
VALUES = st.one_of(
    st.sampled_from(["", '"', "\\", '", "ce_time": "', "traceparent", '"traceparent": "', ": ", ", ", "}"]),
    st.text(max_size=20).filter(lambda text: text.isprintable()),
)
HEADERS = st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=len(NAMES))
RECORDS = st.lists(
    st.tuples(
        st.one_of(st.none(), st.binary(max_size=90)), st.one_of(st.none(), st.binary(max_size=300)), HEADERS
    ),
    min_size=1,
    max_size=80,
)
STAMP = 1_700_000_000_123


def as_jsonb(headers: dict[str, Any]) -> str:
    """What PostgreSQL prints: shorter names first."""
    ordered = sorted(headers.items(), key=lambda pair: (len(pair[0].encode()), pair[0].encode()))
    return json.dumps(dict(ordered), ensure_ascii=False)


def by_aiokafka(
    records: list[tuple[bytes | None, bytes | None, dict[str, str]]], state: tuple[int, int, int]
) -> bytes:
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, 0, 1 << 30)
    for n, (key, value, headers) in enumerate(records):
        pairs: list[tuple[str, bytes | None]] = [
            (name, text.encode()) for name, text in json.loads(as_jsonb(headers)).items()
        ]
        builder.append(n, STAMP, key, value, pairs)
    builder.set_producer_state(*state)
    return bytes(builder.build())


@given(RECORDS, st.tuples(st.integers(0, 2**40), st.integers(0, 3000), st.integers(0, 2**30)))
def test_the_bytes_are_aiokafkas(
    records: list[tuple[bytes | None, bytes | None, dict[str, str]]], state: tuple[int, int, int]
) -> None:
    batch = Batch(STAMP, 1 << 30)
    for n, (key, value, headers) in enumerate(records):
        assert batch.add(n, sized(key), value, headers_of(as_jsonb(headers)))
    size = batch.size()
    batch._set_producer_state(*state)
    built = bytes(batch._build())
    assert built == by_aiokafka(records, state)
    assert (len(built), batch.record_count(), bytes(batch._build())) == (size, len(records), built)


@given(HEADERS)
@example({"ce_id": "1", "ce_time": '", "traceparent": "', "traceparent": "00"})
def test_headers_are_read_back(headers: dict[str, str]) -> None:
    batch = Batch(STAMP, 1 << 30)
    batch.add(1, sized(b"k"), b"v", headers_of(as_jsonb(headers)))
    (record,) = DefaultRecordBatch(batch._build())
    assert dict(record.headers) == {name: text.encode() for name, text in headers.items()}


@pytest.mark.parametrize("size", [0, 1, 63, 64, 8191, 8192, 1_048_575, 1_048_576, 3_000_000])
def test_lengths_at_the_edges(size: int) -> None:
    value = b"x" * size
    batch = Batch(STAMP, 1)
    assert batch.add(1, sized(b"k"), value, headers_of("{}"))
    assert bytes(batch._build()) == by_aiokafka([(b"k", value, {})], (-1, -1, 0))
    assert size_alone(sized(b"k"), value, headers_of("{}")) == batch.size() == len(batch._build())


def test_a_full_batch_takes_no_more() -> None:
    batch = Batch(STAMP, 200)
    added = [batch.add(n, sized(b"k"), b"x" * 50, headers_of("{}")) for n in range(4)]
    assert added == [True, True, False, False]
    assert (batch.seqs, len(batch._build())) == ([0, 1], batch.size())


@pytest.mark.parametrize("text", ["[]", "1", "null", '"ce_id"'])
def test_headers_that_are_no_object_are_refused(text: str) -> None:
    with pytest.raises((AttributeError, ValueError)):
        headers_of(text)


def test_values_that_are_no_text_go_as_json() -> None:
    batch = Batch(STAMP, 1000)
    batch.add(1, sized(None), None, headers_of('{"n": 1, "ce_id": null}'))
    (record,) = DefaultRecordBatch(batch._build())
    assert record.headers == [("n", b"1"), ("ce_id", b"null")]


def test_long_keys_and_headers_are_not_kept() -> None:
    """They may be as large as a record; thousands of them would fill the memory of a relay."""
    kept, key = encode._place_of.cache_info().currsize, "k" * 201
    assert encode.place_of(key, 4) == (
        (encode.murmur2(key.encode()) & 0x7FFFFFFF) % 4,
        sized(key.encode()),
    )
    assert encode._place_of.cache_info().currsize == kept
    kept = len(packing._layouts)
    text = '{"ce_id": "1", "ce_time": "t", "large": "' + "x" * 5000 + '", "traceparent": "p"}'
    assert headers_of(text).endswith(sized(b"traceparent") + sized(b"p"))
    assert len(packing._layouts) == kept


def test_headers_of_one_kind_are_read_once_and_others_of_its_length_aright() -> None:
    packing._layouts.clear()
    own = ["0" * 36, "1" * 36, '"' + "2" * 35, "3" * 35 + "é", "\\" * 36, "4" * 34 + '\\"']
    for n, (event_id, more) in enumerate([(text, more) for text in own for more in ("a", "b")] * 20):
        text = as_jsonb({"ce_id": event_id, "ce_type": "t" * 80, "other": more, "traceparent": f"{n:03}"})
        batch = Batch(STAMP, 5000)
        batch.add(n, sized(None), None, headers_of(text))
        (record,) = DefaultRecordBatch(batch._build())
        assert {name: value.decode() for name, value in record.headers} == json.loads(text)
    assert len(packing._layouts) <= 4


def test_what_is_kept_of_headers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "_MOST", 10)
    for n in range(50):
        headers_of(as_jsonb({"ce_id": "x" * n, "ce_time": "t"}))
    assert len(packing._layouts) <= 10
