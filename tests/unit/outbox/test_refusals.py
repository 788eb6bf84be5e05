"""What publish refuses before anything is written: each with its code and the field's name."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from milepost.outbox.model import event_row
from milepost.outbox.refusals import _is_plain, _leaves
from milepost.schemas.errors import UsageError
from milepost.schemas.events import Event
from milepost.schemas.ids import ManualClock, SystemIds
from pydantic import BaseModel, ConfigDict, Field, field_serializer


class Inner(BaseModel):
    at: datetime | None = None
    names: list[str] = Field(default_factory=list)


class Sent(Event, type="test.sent", topic="sent", key="id"):
    model_config = ConfigDict(arbitrary_types_allowed=True)

    id: str = "1"
    inner: Inner = Inner()
    by_name: dict[str, object] = Field(default_factory=dict)
    anything: Any = None


class Hidden(Event, type="test.hidden", topic="sent"):
    text: str = "x"

    @field_serializer("text")
    def _written(self, text: str) -> str:
        return text + "\0"


def make(event: Event, **options: Any) -> Any:
    return event_row(event, ids=SystemIds(), clock=ManualClock(), **options)


NAIVE = datetime(2026, 1, 1)
REFUSED: list[tuple[str, str, Event, dict[str, Any]]] = [
    ("MP310", "inner.at", Sent(inner=Inner(at=NAIVE)), {}),
    ("MP310", "by_name.when", Sent(by_name={"when": NAIVE}), {}),
    ("MP310", "anything.1.0", Sent(anything=[1, (NAIVE,)]), {}),
    ("MP311", "inner.names.0", Sent(inner=Inner(names=["a\0b"])), {}),
    ("MP311", "by_name.a\0 (as a name)", Sent(by_name={"a\0": 1}), {}),
    ("MP311", "anything", Sent(anything="\ud800"), {}),
    ("MP311", "field id", Sent(id="1\0"), {}),
    ("MP311", "key", Sent(), {"key": "\udfff"}),
    ("MP311", "tenant", Sent(), {"tenant": "t\0"}),
    ("MP311", "topic", Sent(), {"topic": "t\0"}),
    ("MP311", "header 'x'", Sent(), {"headers": {"x": "\0"}}),
    ("MP311", "its body", Hidden(), {}),
    ("MP312", "1000", Sent(id="x" * 1000), {"max_bytes": 1000}),
    ("MP312", "key and headers", Sent(), {"max_bytes": 1000, "headers": {"x": "y" * 1000}}),
    ("MP312", "key and headers", Sent(), {"max_bytes": 1000, "key": "k" * 1001}),
    ("MP313", "or ders", Sent(), {"topic": "or ders"}),
    ("MP313", "xxx", Sent(), {"topic": "x" * 250}),
    ("MP315", "header 'x' is bytes", Sent(), {"headers": {"x": b"1"}}),
    ("MP315", "header 'x' is NoneType", Sent(), {"headers": {"x": None}}),
    ("MP315", "header 1", Sent(), {"headers": {1: "x"}}),
    ("MP316", "'CE_id'", Sent(), {"headers": {"CE_id": "1"}}),
    ("MP316", "'traceparent'", Sent(), {"headers": {"traceparent": "00-0"}}),
    ("MP316", "'Content-Type'", Sent(), {"headers": {"Content-Type": "text/plain"}}),
    ("MP317", "test.sent", Sent(anything=object()), {}),
]


@pytest.mark.parametrize(("code", "named", "event", "options"), REFUSED)
def test_refused(code: str, named: str, event: Event, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as raised:
        make(event, **options)
    assert raised.value.code == code
    assert named in raised.value.text
    assert raised.value.text.count(". ") >= 1, "says what to do"


@pytest.mark.parametrize(
    "event",
    [
        Sent(inner=Inner(at=datetime(2026, 1, 1, tzinfo=UTC))),
        Sent(id="grüße 👋🏽", by_name={"ключ": "значение"}),
        Sent(anything="a literal \\u0000 in text"),
        Sent(anything="\\\\u0000"),
        Sent(id="x" * 900),
    ],
)
def test_accepted(event: Sent) -> None:
    row = make(event, max_bytes=1200, headers={"shop": "grün"})
    assert Sent.model_validate_json(row.payload) == event
    assert row.headers["shop"] == "grün"


class Flat(BaseModel):
    """Whatever an event's fields may hold."""

    model_config = ConfigDict(extra="allow")
    field: Any


texts = st.text(st.characters(exclude_categories=[]) | st.sampled_from("\0\ud800"))
leaves: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.decimals() | st.uuids() | st.dates() | texts
)
leaves = st.one_of(leaves, st.datetimes(), st.datetimes(timezones=st.just(UTC)), st.binary())


@given(
    st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3)
    )
)
def test_the_quick_look_passes_nothing_that_would_be_refused(field: Any) -> None:
    for value in (Flat(field=field), Flat.model_validate({"field": 1, "more": field})):
        if _is_plain(value):
            assert all(not isinstance(leaf, datetime) for _, leaf in _leaves("", value))
            assert all(
                "\0" not in leaf and leaf.isascii() for _, leaf in _leaves("", value) if isinstance(leaf, str)
            )
