"""Secrets that a class does not show: refused when they would be stored, and never quoted."""

from __future__ import annotations

from typing import Any

import pytest
from milepost.sagas import codec
from milepost.schemas.errors import UsageError
from milepost.schemas.options import Then
from pydantic import BaseModel, Secret, SecretStr

from tests.support.waits import waiting


class Loose(BaseModel):
    thing: Any


class Inner(BaseModel):
    pin: SecretStr


@pytest.mark.parametrize(
    "thing", [SecretStr("4711"), [SecretStr("4711")], {"a": Inner(pin=SecretStr("4711"))}, Secret[int](4711)]
)
def test_a_secret_in_a_field_of_any_class_is_refused(thing: Any) -> None:
    with pytest.raises(UsageError, match=r"MP342 here, field thing.* is a Secret") as raised:
        codec.encode(Loose, Loose(thing=thing), "here")
    assert "4711" not in str(raised.value)


def test_asterisks_that_somebody_wrote_are_a_text_like_any_other() -> None:
    assert codec.encode(Loose, Loose(thing="**********"), "here") == {"thing": "**********"}


def test_history_does_not_quote_a_signal_that_is_not_its_event() -> None:
    play = waiting(Then.PERSON)
    decision = play.signal("delivered", {"id": ["ann@example.org"]})
    assert play.run.code == "SIGNAL_INVALID"
    assert "ann@" not in repr([entry.data for entry in decision.history])
    assert play.step("delivered").message == "it is no Delivered: id: string_type"
