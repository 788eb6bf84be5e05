"""Declarations of consumers, and the words for wrong ones."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from milepost.inbox.consumer import Consumer
from milepost.schemas.errors import DefinitionError
from milepost.schemas.events import Event
from milepost.schemas.options import Retry


class Placed(Event, type="c.placed", topic="orders"):
    order: str


class PlacedToo(Event, type="c.placed", topic="orders"):
    order: str


class Shipped(Event, type="c.shipped", topic="shipping"):
    order: str


async def handle(event: Any, tx: Any) -> None: ...


def test_topics_and_handlers_are_known() -> None:
    consumer = Consumer("billing")
    assert consumer.on(Placed)(handle) is handle
    consumer.on(Shipped)(handle)
    assert consumer.topics == ["orders", "shipping"]
    assert consumer.handler_of("c.placed") == (Placed, handle)
    assert consumer.handler_of("c.other") is None


def test_two_handlers_of_one_type_are_refused_by_name() -> None:
    consumer = Consumer("billing")
    consumer.on(Placed)(handle)
    with pytest.raises(DefinitionError, match=r"MP123 consumer billing: .*second handler of c\.placed"):
        consumer.on(PlacedToo)(handle)


def not_async(event: Any, tx: Any) -> None: ...


async def too_few(event: Any) -> None: ...


@pytest.mark.parametrize("wrong", [not_async, too_few, print])
def test_what_cannot_be_a_handler_is_refused(wrong: Any) -> None:
    with pytest.raises(DefinitionError, match="MP124"):
        Consumer("billing").on(Placed)(wrong)


class Callable:
    async def __call__(self, event: Any, tx: Any) -> None: ...


async def three(first: Any, event: Any, tx: Any) -> None: ...


@pytest.mark.parametrize("good", [Callable(), functools.partial(three, 1)])
def test_other_async_callables_are_handlers(good: Any) -> None:
    consumer = Consumer("billing")
    consumer.on(Placed)(good)
    assert consumer.handler_of("c.placed") == (Placed, good)


@pytest.mark.parametrize(
    "options",
    [
        {"name": ""},
        {"name": "with space"},
        {"name": "b", "unknown": "ignore"},
        {"name": "b", "batch": 0},
        {"name": "b", "retry": Retry(attempts=0)},
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match="MP123"):
        Consumer(**options)
