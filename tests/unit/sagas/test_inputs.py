"""Older inputs: read by the class that they were stored as, brought up class by class, under the same shape."""

from __future__ import annotations

import pytest
from milepost import Repeat, Saga
from milepost.sagas.context import Context
from milepost.schemas.errors import DefinitionError
from pydantic import BaseModel, ValidationError


class One(BaseModel):
    id: str


class Two(BaseModel):
    id: str
    cents: int


class Three(BaseModel):
    id: str
    cents: int
    currency: str


async def act(ctx: Context[BaseModel]) -> None:
    """Do nothing."""


def saga_of(kind: type[BaseModel]) -> Saga[BaseModel]:
    return Saga("order", version=1, input=kind, key=lambda given: str(given.model_dump()["id"]))


def closed(saga: Saga[BaseModel]) -> Saga[BaseModel]:
    saga.flow(saga.step(repeat=Repeat.SAFE)(act))
    return saga


def to_two(old: One) -> Two:
    return Two(id=old.id, cents=100)


def to_three(old: Two) -> Three:
    return Three(**old.model_dump(), currency="EUR")


def grown() -> Saga[BaseModel]:
    saga = saga_of(Three)
    saga.upcast_input(from_version=2)(to_three)
    saga.upcast_input(from_version=1)(to_two)
    return closed(saga)


def test_each_version_is_read_and_the_shape_stays() -> None:
    definition = grown().definition
    assert definition.input_version == 3
    assert (
        definition.shape == closed(saga_of(One)).definition.shape != closed(saga_of(Three)).definition.shape
    )
    eur = Three(id="o-1", cents=100, currency="EUR")
    assert definition.decode_input({"id": "o-1"}, 1) == eur
    assert definition.decode_input({"id": "o-1", "cents": 100}, 2) == eur
    assert definition.decode_input({"id": "o-1", "cents": 100, "currency": "EUR"}, 3) == eur
    with pytest.raises(ValidationError):
        definition.decode_input({"id": "o-1"}, 2)


@pytest.mark.parametrize("versions", [(2,), (1, 1), (1, 3)])
def test_a_gap_in_the_chain_is_refused(versions: tuple[int, ...]) -> None:
    saga = saga_of(Two)
    for version in versions:
        saga.upcast_input(from_version=version)(to_two)
    with pytest.raises(DefinitionError, match="MP119 order v1: its upcasters take versions"):
        closed(saga)


def test_a_chain_that_leads_elsewhere_is_refused() -> None:
    saga = saga_of(Three)
    saga.upcast_input(from_version=1)(to_two)
    with pytest.raises(DefinitionError, match="returns Two, but version 2 of the input is Three"):
        closed(saga)


def test_the_function_must_say_its_classes() -> None:
    with pytest.raises(DefinitionError, match=r"MP119 .* one annotated argument"):
        saga_of(Two).upcast_input(from_version=1)(lambda old: old)


def test_an_upcaster_that_raises_or_lies_is_named_without_the_values() -> None:
    def raises(old: One) -> Two:
        raise KeyError(old.id)

    def lies(old: One) -> Two:
        return old  # type: ignore[return-value]

    for fn, words in ((raises, "raised KeyError"), (lies, "returned One, not Two")):
        saga = saga_of(Two)
        saga.upcast_input(from_version=1)(fn)
        with pytest.raises(DefinitionError, match="MP119") as raised:
            closed(saga).definition.decode_input({"id": "secret"}, 1)
        assert words in raised.value.text and "secret" not in raised.value.text


def test_pins_name_every_input_that_can_be_read() -> None:
    from milepost.sagas.registry import Definitions

    saga = grown()
    shape = saga.definition.shape
    assert Definitions([saga]).pins == [f"order/1#{shape}@{version}" for version in (1, 2, 3)]
