"""Whatever the bytes of a record are, it is an event that can be stored, or it is poison that is parked."""

from __future__ import annotations

import json
from uuid import UUID, uuid5

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from milepost.inbox import letter, model
from milepost.inbox.model import Act
from milepost.schemas.envelope import STRUCTURED, NotAnEvent, Record, read_event
from milepost.schemas.ids import EVENT_NAMESPACE, event_identity

from tests.support.inbox import Paid

NAMES = (
    "type",
    "source",
    "id",
    "tenant",
    "time",
    "eventversion",
    "correlationid",
    "causationid",
    "specversion",
)
TEXT = st.text(st.characters(), max_size=20) | st.sampled_from(
    ["test.paid", "\ud800", "a\x00b", "9" * 30, ""]
)
BYTES = st.binary(max_size=30) | TEXT.map(lambda text: text.encode(errors="surrogatepass"))
HEADER_NAMES = st.sampled_from(
    [*(f"ce_{name}" for name in NAMES), "CE_ID", "content-type", "traceparent", "tracestate", "x"]
)
HEADERS = st.lists(st.tuples(HEADER_NAMES, st.none() | BYTES), max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
BODY = st.fixed_dictionaries(
    {"type": st.just("test.paid") | TEXT},
    optional=dict.fromkeys((*NAMES[1:], "data", "traceparent"), JSON),
).map(lambda body: json.dumps(body).encode())
MARK = ("content-type", STRUCTURED.encode())
BINARY = st.tuples(st.none() | st.binary(max_size=60), HEADERS)
IN_BODY = st.tuples(st.none() | st.binary(max_size=60) | BODY, HEADERS.map(lambda some: [*some, MARK]))

HEAD = b'{"type":"test.paid","source":"s","id":"1","data":'


async def handle(event: object, tx: object) -> None: ...


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@example((HEAD + b"9" * 5000 + b"}", [MARK]))
@example((HEAD + b'"\\ud800"}', [MARK]))
@example((HEAD + b"[" * 100_000, [MARK]))
@example((HEAD + b"[" * 900 + b"]" * 900 + b"}", [MARK]))
@example((b'{"type":"test.paid","source":"\\ud800","id":"1"}', [MARK]))
@example((b'{"type":"test.paid","tenant":"\\u0000"}', [MARK]))
@example((b"{}", [("ce_type", b"test.paid"), ("ce_id", b"1\x00"), ("ce_correlationid", b"\x00")]))
@given(BINARY | IN_BODY)
def test_any_record_is_a_storable_event_or_poison(
    content: tuple[bytes | None, list[tuple[str, bytes | None]]],
) -> None:
    value, headers = content
    record = Record("t", 0, 7, None, value, headers, 0)
    try:
        envelope, data = read_event(record)
    except NotAnEvent as error:
        assert error.code in {"NO_TYPE", "BAD_HEADER", "BAD_JSON", "NO_VALUE", "UNSUPPORTED_FORMAT"}
        letter.for_people(str(error)).encode()
    else:
        texts = (
            envelope.event_id,
            envelope.source,
            envelope.type,
            envelope.tenant,
            envelope.correlation_id,
            envelope.causation_id,
            envelope.traceparent,
            envelope.tracestate,
        )
        assert all("\x00" not in text and text.encode() is not None for text in texts if text)
        assert isinstance(envelope.id, UUID) and isinstance(data, bytes)
    item = model.read(record, lambda type: (Paid, handle), unknown="dead_letter", oldest_ms=0)
    assert item.act in {Act.PARK, Act.HANDLE}
    assert "\x00" not in item.tenant and item.tenant.encode() is not None


@given(st.text(), st.text(), st.text(max_size=40))
def test_an_identity_is_a_name_based_uuid_of_all_three(tenant: str, source: str, event_id: str) -> None:
    parts = "".join(f"{len(part)}:{part}" for part in (tenant, source, event_id))
    assert event_identity(tenant, source, event_id) == uuid5(EVENT_NAMESPACE, parts)


@given(TEXT, TEXT, TEXT)
def test_an_identity_exists_for_any_text(tenant: str, source: str, event_id: str) -> None:
    assert event_identity(tenant, source, event_id).version in {5, 7}
