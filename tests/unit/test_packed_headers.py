"""A record whose headers all lie in one, as Debezium's router writes it."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from milepost.schemas.envelope import NotAnEvent, Record, event_headers, read_event
from milepost.schemas.ids import SystemIds

EVENT = SystemIds().new()
HEADERS = event_headers(
    event_id=EVENT,
    source="shop",
    type="shop.order-placed",
    version=2,
    time=datetime(2026, 1, 1, tzinfo=UTC),
    tenant="acme",
    correlation_id="c-1",
)


def _record(*headers: tuple[str, bytes | None]) -> Record:
    return Record("orders", 0, 7, b"k", b"{}", headers, 0)


def test_every_attribute_is_read_from_the_one_header() -> None:
    packed = _record(("id", str(EVENT).encode()), ("milepost-headers", json.dumps(HEADERS).encode()))
    plain = _record(*((name, text.encode()) for name, text in HEADERS.items()))
    assert read_event(packed) == read_event(plain)


def test_a_header_of_its_own_wins_and_another_id_is_refused() -> None:
    packed = ("milepost-headers", json.dumps(HEADERS).encode())
    for order in ([packed, ("ce_tenant", b"other")], [("ce_tenant", b"other"), packed]):
        assert read_event(_record(*order))[0].tenant == "other"
    with pytest.raises(NotAnEvent, match="two different ce_id"):
        read_event(_record(packed, ("ce_id", b"x")))


@pytest.mark.parametrize("value", [b"", b"{", b"[]", b"\xc3\x28", None, b"[" * 100_000])
def test_what_is_no_object_is_a_bad_header(value: bytes | None) -> None:
    with pytest.raises(NotAnEvent) as refused:
        read_event(_record(("milepost-headers", value)))
    assert refused.value.code == "BAD_HEADER"
