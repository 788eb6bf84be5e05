"""The CloudEvents Python SDK as a peer: it reads what we write, and we read what it writes, in both modes."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from cloudevents.core.bindings.kafka import KafkaMessage, from_kafka, to_binary_event, to_structured_event
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from hypothesis import given, settings
from hypothesis import strategies as st
from milepost import Event
from milepost.inbox import model
from milepost.inbox.model import Act, Item
from milepost.outbox.model import event_row
from milepost.schemas.envelope import NotAnEvent, Record, read_event
from milepost.schemas.ids import SystemClock, SystemIds
from milepost.schemas.structured import read_structured

TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
AT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=timezone(timedelta(hours=2)))


class Paid(Event, type="shop.paid", version=3, topic="payments", key="order"):
    order: str
    amount: Decimal


async def handle(event: Paid, tx: object) -> None: ...


def record(message: KafkaMessage) -> Record:
    """Return what a poll would hand over for a message of the SDK."""
    key = message.key.encode() if isinstance(message.key, str) else message.key
    return Record("payments", 0, 7, key, message.value, list(message.headers.items()), 0)


def item(found: Record, unknown: Any = "dead_letter") -> Item:
    """Return what a consumer of `Paid` makes of a record."""
    return model.read(found, {"shop.paid": (Paid, handle)}.get, unknown=unknown, oldest_ms=0)


def attributes(**more: Any) -> dict[str, Any]:
    """Return the attributes of an event of the SDK."""
    return {
        "id": "a b/Ü-1",
        "source": "/shop/europe?x=1",
        "type": "shop.paid",
        "specversion": "1.0",
        "time": AT,
        "datacontenttype": "application/json",
        "tenant": "acme",
        "correlationid": "order-7",
        "causationid": "c-1",
        "partitionkey": "o-1",
        "eventversion": 2,
        **more,
    }


def test_the_sdk_reads_what_we_write() -> None:
    row = event_row(
        Paid(order="ö-1", amount=Decimal("12.340")),
        ids=SystemIds(),
        clock=SystemClock(),
        tenant="acme",
        correlation_id="order-7",
        causation_id="c-1",
        traceparent=TRACEPARENT,
        headers={"region": "eu"},
    )
    headers = {name: text.encode() for name, text in row.headers.items()}
    found = from_kafka(
        KafkaMessage(headers, (row.aggregateid or "").encode(), row.payload or b""), JSONFormat(), CloudEvent
    )
    assert found.get_id() == str(row.id)
    assert (found.get_type(), found.get_source(), found.get_specversion()) == ("shop.paid", "shop", "1.0")
    assert found.get_datacontenttype() == "application/json"
    time = found.get_time()
    assert time is not None and abs(datetime.now(UTC) - time) < timedelta(minutes=1)
    assert found.get_data() == {"order": "ö-1", "amount": "12.340"}
    extensions = {
        name: found.get_extension(name)
        for name in ("tenant", "correlationid", "causationid", "eventversion", "partitionkey")
    }
    assert extensions == {
        "tenant": "acme",
        "correlationid": "order-7",
        "causationid": "c-1",
        "eventversion": "3",
        "partitionkey": "ö-1",
    }


@pytest.mark.parametrize("write", [to_binary_event, to_structured_event])
def test_we_read_what_the_sdk_writes(write: Any) -> None:
    sent = CloudEvent(attributes=attributes(), data={"order": "ö-1", "amount": "12.340"})
    found = item(record(write(sent)))
    assert found.act is Act.HANDLE, found.reason
    assert found.event == Paid(order="ö-1", amount=Decimal("12.340"))
    envelope = found.envelope
    assert envelope is not None
    assert (envelope.event_id, envelope.source, envelope.type) == ("a b/Ü-1", "/shop/europe?x=1", "shop.paid")
    assert (envelope.tenant, envelope.correlation_id, envelope.causation_id) == ("acme", "order-7", "c-1")
    assert (envelope.version, envelope.time, envelope.key) == (2, AT, b"o-1")
    assert envelope.content_type == "application/json"


def test_both_modes_of_one_event_are_one_event() -> None:
    sent = CloudEvent(attributes=attributes(), data={"order": "o", "amount": 1.5})
    one, two = item(record(to_binary_event(sent))), item(record(to_structured_event(sent)))
    assert (one.id, one.fingerprint) == (two.id, two.fingerprint), "the second is a duplicate of the first"


def test_structured_data_in_base64_is_read() -> None:
    body = json.dumps({"order": "o", "amount": "1"}).encode()
    message = to_structured_event(CloudEvent(attributes=attributes(), data=body))
    assert b"data_base64" in message.value
    assert item(record(message)).event == Paid(order="o", amount=Decimal(1))


@pytest.mark.parametrize("write", [to_binary_event, to_structured_event])
@pytest.mark.parametrize(
    ("content_type", "data"),
    [("text/plain", "12.34"), ("application/octet-stream", b"\x00\xff"), ("application/xml", "<paid/>")],
)
def test_other_content_than_json_is_parked_with_a_code(write: Any, content_type: str, data: Any) -> None:
    message = write(CloudEvent(attributes=attributes(datacontenttype=content_type), data=data))
    found = item(record(message))
    assert found.reason is not None and found.reason.code == "UNSUPPORTED_CONTENT"
    assert content_type in found.reason.message
    _, raw = read_event(record(message))
    assert raw == (data if isinstance(data, bytes) else data.encode())
    other = write(CloudEvent(attributes=attributes(datacontenttype=content_type, type="x"), data=data))
    assert item(record(other), unknown="skip").act is Act.PASS, (
        "a type that nobody takes is no concern of ours"
    )


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "application/json; charset=utf-8",
        "APPLICATION/JSON",
        "text/json",
        "application/vnd.x+json",
    ],
)
@pytest.mark.parametrize("write", [to_binary_event, to_structured_event])
def test_every_kind_of_json_is_json(write: Any, content_type: str) -> None:
    data = b'{"order": "o", "amount": "1"}'
    message = write(CloudEvent(attributes=attributes(datacontenttype=content_type), data=data))
    assert item(record(message)).act is Act.HANDLE


@pytest.mark.parametrize(
    "content_type",
    ["application/cloudevents+avro", "application/cloudevents-batch+json", "application/cloudevents"],
)
def test_another_structured_format_is_parked_with_a_code(content_type: str) -> None:
    found = item(Record("t", 0, 0, None, b"{}", [("content-type", content_type.encode())], 0))
    assert found.reason is not None and found.reason.code == "UNSUPPORTED_FORMAT"


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2018-04-05T17:31:00Z", datetime(2018, 4, 5, 17, 31, tzinfo=UTC)),
        ("2018-04-05t17:31:00z", datetime(2018, 4, 5, 17, 31, tzinfo=UTC)),
        ("2018-04-05T17:31:00.5+02:00", datetime(2018, 4, 5, 15, 31, 0, 500_000, tzinfo=UTC)),
        ("2018-04-05T17:31:00.123456789Z", datetime(2018, 4, 5, 17, 31, 0, 123_456, tzinfo=UTC)),
        ("2018-04-05T17:31:00", None),
        ("yesterday", None),
    ],
)
def test_times_are_rfc_3339_and_a_bad_one_parks_nothing(text: str, time: datetime | None) -> None:
    headers = [("ce_type", b"shop.paid"), ("ce_id", b"1"), ("ce_source", b"s"), ("ce_time", text.encode())]
    envelope, _ = read_event(Record("t", 0, 0, None, b"{}", headers, 0))
    assert envelope.time == time


def test_numbers_of_structured_data_keep_every_digit() -> None:
    written = '{"order":"o","amount":1.10000000000000000000000001}'
    value = f'{{"type":"shop.paid","id":"1","source":"s","data": {written} }}'.encode()
    _, data = read_structured(value)
    assert data.decode() == written


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"[]",
        b"{",
        b'{"type"}',
        b'{"type":"a",}',
        b'{"type":"a"} x',
        b'{"type":"a" "id":"b"}',
        b'{1:"a"}',
        b'{"type":"a","data":1,"data_base64":"AA=="}',
        b'{"type":"a","data_base64":"not base64!"}',
        b'{"type":"a","data_base64":1}',
        b"\xff\xfe",
    ],
)
def test_what_is_no_structured_event_is_parked(value: bytes) -> None:
    with pytest.raises(NotAnEvent) as raised:
        read_event(Record("t", 0, 0, None, value, [("content-type", b"application/cloudevents+json")], 0))
    assert raised.value.code == "BAD_JSON"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.text(min_size=1), JSON, max_size=6), JSON, st.sampled_from([None, 0, 1]))
def test_our_split_is_that_of_a_json_parser(members: dict[str, Any], data: Any, indent: int | None) -> None:
    members.pop("data_base64", None)
    value = json.dumps(
        {**members, "data": data, "datacontenttype": "application/json"}, indent=indent
    ).encode()
    found, raw = read_structured(value)
    assert json.loads(raw) == data
    expected = {name: text for name, text in members.items() if isinstance(text, str)}
    assert {name: found[name] for name in expected if name not in {"data", "datacontenttype"}} == {
        name: text for name, text in expected.items() if name not in {"data", "datacontenttype"}
    }
