"""Bodies are written so that their class reads them back; tombstones have none; no secret turns to asterisks."""

from __future__ import annotations

from typing import Any

import pytest
from milepost import AesGcm, Event, Tombstone, UsageError
from milepost.outbox.model import event_row
from milepost.schemas.ids import ManualClock, SystemIds
from milepost.schemas.reading import read_stored
from pydantic import Field, SecretStr, field_serializer


class Named(Event, type="shop.named", topic="names", key="order_id"):
    order_id: str = Field(alias="orderId")
    owner: str = Field(serialization_alias="who", validation_alias="who")


class Masked(Event, type="shop.masked", topic="names"):
    pin: SecretStr


class Told(Event, type="shop.told", topic="names", codec=AesGcm({"k": b"k" * 32})):
    pin: SecretStr

    @field_serializer("pin")
    def plain(self, value: SecretStr) -> str:
        return value.get_secret_value()


def row(event: Any, **options: Any) -> Any:
    return event_row(event, ids=SystemIds(), clock=ManualClock(), **options)


def test_aliases_are_read_back() -> None:
    event = Named.model_validate({"orderId": "o-1", "who": "ann"})
    made = row(event)
    assert made.payload == b'{"orderId":"o-1","who":"ann"}' and made.aggregateid == "o-1"
    assert read_stored(Named, made.payload, made.headers) == event


def test_a_secret_that_would_turn_to_asterisks_is_refused() -> None:
    with pytest.raises(UsageError, match=r"MP317.*field pin is a SecretStr") as raised:
        row(Masked(pin=SecretStr("4711")))
    assert "4711" not in str(raised.value)
    made = row(Told(pin=SecretStr("4711")))
    assert b"4711" not in made.payload
    assert read_stored(Told, made.payload, made.headers).pin.get_secret_value() == "4711"


def test_asterisks_that_somebody_wrote_are_a_text_like_any_other() -> None:
    made = row(Named.model_validate({"orderId": "**********", "who": ""}))
    assert made.payload == b'{"orderId":"**********","who":""}'


def test_the_limit_is_of_what_is_sent() -> None:
    event = Told(pin=SecretStr("1"))
    size = len(row(event).payload)
    assert len(row(event, max_bytes=size).payload) == size
    with pytest.raises(UsageError, match=f"MP312.*{size} bytes"):
        row(event, max_bytes=size - 1)


def test_a_tombstone() -> None:
    made = row(Tombstone(Named, key="o-1"), tenant="acme")
    assert (made.topic, made.aggregateid, made.payload, made.type) == ("names", "o-1", None, "shop.named")
    assert made.headers["milepost-tombstone"] == "true" and "content-type" not in made.headers
    assert row(Tombstone(Named, key="o-1"), key="other", topic="t").aggregateid == "other"


@pytest.mark.parametrize(
    ("event", "key"), [(Named, ""), (Named, None), (Named, 7), (str, "k"), ("Named", "k")]
)
def test_a_tombstone_of_nothing(event: Any, key: Any) -> None:
    with pytest.raises(UsageError, match="MP345"):
        Tombstone(event, key=key)


def test_a_tombstones_key_is_text_that_can_be_stored() -> None:
    with pytest.raises(UsageError, match="MP311"):
        row(Tombstone(Named, key="a\0"))
