"""Old versions of an event reach the class's version step by step, or say why not."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from milepost import AesGcm, Consumer, DefinitionError, Event, Saga, Then, Unreadable
from milepost.schemas.codecs import CodecContext
from milepost.schemas.envelope import Record, read_event
from milepost.schemas.events import check_upcasters
from milepost.schemas.reading import at_version, read_body, read_stored
from pydantic import BaseModel, ConfigDict, field_validator

KEY = b"k" * 32


class Placed(Event, type="shop.placed", version=3, topic="orders", key="order_id", correlate="order_id"):
    order_id: str
    cents: int
    currency: str


@Placed.upcast(from_version=1)
def with_cents(body: dict[str, Any]) -> dict[str, Any]:
    return {"order_id": body["order_id"], "cents": round(body["amount"] * 100)}


@Placed.upcast(from_version=2)
def with_currency(body: dict[str, Any]) -> dict[str, Any]:
    return {**body, "currency": "EUR"}


def about(version: int, type: str = "shop.placed") -> CodecContext:
    return CodecContext(type=type, event_id="e", version=version)


def read(kind: type[Event], body: Any, version: int) -> Event:
    return read_body(kind, json.dumps(body).encode(), about(version), {})


def refused(code: str, kind: type[Event], body: Any, version: int) -> Unreadable:
    with pytest.raises(Unreadable) as raised:
        read(kind, body, version)
    assert raised.value.code == code, raised.value
    return raised.value


def test_a_chain_is_walked_from_where_the_body_is() -> None:
    wanted = Placed(order_id="o-1", cents=990, currency="EUR")
    assert read(Placed, {"order_id": "o-1", "amount": 9.9}, 1) == wanted
    assert read(Placed, {"order_id": "o-1", "cents": 990}, 2) == wanted
    assert read(Placed, {"order_id": "o-1", "cents": 990, "currency": "EUR"}, 3) == wanted


def test_a_newer_version_waits_for_its_class() -> None:
    """It would fit, and that is the danger: the meaning may have changed."""
    error = refused("EVENT_TOO_NEW", Placed, {"order_id": "o-1", "cents": 990, "currency": "EUR"}, 4)
    assert error.recoverable and "version 4" in str(error) and "3" in str(error)


def test_a_class_without_upcasters_reads_what_is_older_as_it_is() -> None:
    class Plain(Event, type="shop.plain", version=2, topic="orders"):
        n: int = 0

    assert read(Plain, {"old": True}, 1) == Plain()


def test_older_than_the_oldest_upcaster() -> None:
    class Young(Event, type="shop.young", version=3, topic="orders"):
        n: int = 0

    @Young.upcast(from_version=2)
    def up(body: dict[str, Any]) -> dict[str, Any]:
        return body

    check_upcasters(Young)
    assert "version 1" in str(refused("NO_UPCASTER", Young, {}, 1))


@pytest.mark.parametrize("found", [ValueError("4111"), {"n": object()}, "text", None])
@pytest.mark.parametrize("secret", [False, True])
def test_an_upcaster_that_fails(found: Any, secret: bool) -> None:
    class Failing(
        Event,
        type="shop.failing",
        version=2,
        topic="orders",
        codec=AesGcm({"k": KEY}, reads_plain=True) if secret else None,
    ):
        n: int = 0

    @Failing.upcast(from_version=1)
    def up(body: dict[str, Any]) -> dict[str, Any]:
        if isinstance(found, Exception):
            raise found
        return found  # type: ignore[no-any-return]

    error = refused("UPCAST_FAILED", Failing, {}, 1)
    assert error.recoverable and "from version 1" in str(error)
    if isinstance(found, Exception):
        assert ("4111" in str(error)) is not secret


def test_a_body_that_is_no_object() -> None:
    refused("UPCAST_FAILED", Placed, [1], 1)
    with pytest.raises(Unreadable) as raised:
        read_body(Placed, b"{", about(1), {})
    assert raised.value.code == "INVALID_BODY"


def test_the_words_of_a_secret_body_say_where_and_nothing_else() -> None:
    class Card(Event, type="shop.card", topic="cards", codec=AesGcm({"k": KEY}, reads_plain=True)):
        model_config = ConfigDict(extra="forbid")
        number: Literal["4000"]
        owner: int

        @field_validator("owner")
        @classmethod
        def known(cls, value: int) -> int:
            raise ValueError(f"nobody called {value}")

    error = refused("INVALID_BODY", Card, {"number": "4111", "owner": 987654, "4222": "4333"}, 1)
    assert "number: literal_error" in str(error) and "owner: value_error" in str(error)
    assert not any(part in str(error) for part in ("4111", "987654", "4222", "4333"))
    assert "4111" in str(
        refused("INVALID_BODY", Placed, {"order_id": 1, "cents": "4111x", "currency": "E"}, 3)
    )


def test_wrong_chains_are_refused_at_import() -> None:
    def gapped() -> type[Event]:
        class Gapped(Event, type="shop.gapped", version=4, topic="orders", correlate="n"):
            n: int = 0

        for version in (1, 3):
            Gapped.upcast(from_version=version)(lambda body: body)
        return Gapped

    for version in (0, 3, 4, -1):
        with pytest.raises(DefinitionError, match=r"MP344.*leads nowhere"):
            Placed.upcast(from_version=version)
            Placed.upcast(from_version=version)(lambda body: body)
    with pytest.raises(DefinitionError, match=r"MP344.*two upcasters"):
        Placed.upcast(from_version=1)(lambda body: body)
    with pytest.raises(DefinitionError, match=r"MP344.*takes version 2.*from_version=2"):
        check_upcasters(gapped())
    with pytest.raises(DefinitionError, match="MP344"):
        Consumer("c").on(gapped())(_handler)
    with pytest.raises(DefinitionError, match="MP344"):
        saga_waiting_for(gapped())


async def _handler(event: Any, tx: Any) -> None: ...


class Order(BaseModel):
    id: str


def saga_waiting_for(event: type[Event]) -> Saga[Order]:
    saga = Saga("order", version=1, input=Order, key=lambda o: o.id)
    from datetime import timedelta

    wait = saga.wait(
        "done", event, match=lambda v: v.input.id, timeout=timedelta(days=1), on_timeout=Then.CANCEL
    )
    saga.flow(wait)
    return saga


def test_no_saga_waits_for_an_encrypted_event() -> None:
    class Card(Event, type="shop.card", topic="cards", correlate="id", codec=AesGcm({"k": KEY})):
        id: str

    with pytest.raises(DefinitionError, match=r"MP348 order v1, wait done: Card is encrypted"):
        saga_waiting_for(Card)
    saga_waiting_for(Placed)


def test_upcasters_are_not_inherited() -> None:
    class Other(Placed, type="shop.other", version=2, topic="orders"):
        pass

    assert Other.milepost_upcasters == {} and len(Placed.milepost_upcasters) == 2


@pytest.mark.parametrize(
    ("version", "code"),
    [
        ("1" + "0" * 9, "EVENT_TOO_NEW"),
        ("9" * 5000, "EVENT_TOO_NEW"),
        ("3.0", "NO_UPCASTER"),
        ("-3", "NO_UPCASTER"),
    ],
)
def test_a_version_that_is_no_small_number_is_not_taken_for_the_first(version: str, code: str) -> None:
    """An upcaster of version 1 would make cents of cents."""
    body = b'{"order_id":"o","amount":990,"cents":990,"currency":"EUR"}'
    headers = [("ce_type", b"shop.placed"), ("ce_id", b"1"), ("ce_eventversion", version.encode())]
    envelope, data = read_event(Record("orders", 0, 0, None, body, headers, 0))
    with pytest.raises(Unreadable) as raised:
        read_body(Placed, data, about(envelope.version), {})
    assert raised.value.code == code
    with pytest.raises(Unreadable):
        read_stored(Placed, body, {"ce_eventversion": version})
    headers[2] = ("ce_eventversion", b"")
    assert read_event(Record("orders", 0, 0, None, body, headers, 0))[0].version == 1


def test_an_outbox_row_reads_back() -> None:
    body = json.dumps({"order_id": "o", "amount": 1}).encode()
    assert read_stored(Placed, body, {"ce_eventversion": "1"}).cents == 100
    assert (
        read_stored(Placed, b'{"order_id":"o","cents":1,"currency":"X"}', {"ce_eventversion": "3"}).cents == 1
    )


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(
    body=st.dictionaries(st.text(), json_values, max_size=4),
    version=st.integers(1, 6),
    current=st.integers(1, 6),
)
def test_any_body_of_any_version(body: dict[str, Any], version: int, current: int) -> None:
    """Each upcaster between is called once, in order, and nothing else of the body changes."""

    class Grown(Event, type="shop.grown", version=current, topic="orders"):
        pass

    for n in range(1, current):

        @Grown.upcast(from_version=n)
        def up(body: dict[str, Any], n: int = n) -> dict[str, Any]:
            return {**body, "way": [*body.get("way", []), n]} if n > version else {**body, "way": [n]}

    raw = json.dumps(body).encode()
    if version > current:
        with pytest.raises(Unreadable) as raised:
            at_version(Grown, raw, version)
        assert raised.value.code == "EVENT_TOO_NEW"
    elif version == current:
        assert at_version(Grown, raw, version) == raw
    else:
        found = json.loads(at_version(Grown, raw, version))
        assert found.pop("way") == list(range(version, current))
        assert found == {name: value for name, value in body.items() if name != "way"}
