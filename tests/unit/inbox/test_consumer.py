"""Declarations of consumers, and the words for wrong ones."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from milepost.inbox.consumer import Consumer
from milepost.schemas.commands import Command
from milepost.schemas.errors import DefinitionError
from milepost.schemas.events import Event
from milepost.schemas.options import Retry


class Placed(Event, type="c.placed", topic="orders"):
    order: str


class PlacedToo(Event, type="c.placed", topic="orders"):
    order: str


class Shipped(Event, type="c.shipped", topic="shipping"):
    order: str


class Ordered(Command[Placed], type="c.order", topic="orders"):
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


async def answers_none(command: Ordered, tx: Any) -> None: ...


async def answers_another(command: Ordered, tx: Any) -> Shipped:
    return Shipped(order=command.order)


class AnswersText:
    async def __call__(self, command: Ordered, tx: Any) -> str:
        return command.order


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        (answers_none, "None"),
        (answers_another, "Shipped"),
        (AnswersText(), "str"),
        (functools.partial(answers_none), "None"),
    ],
)
def test_an_answer_that_is_annotated_to_be_something_else_is_refused(wrong: Any, what: str) -> None:
    consumer = Consumer("billing")
    with pytest.raises(
        DefinitionError, match=rf"MP473 consumer billing: .* return {what}, not Placed\. .*-> Placed"
    ):
        consumer.answers(Ordered, Placed)(wrong)
    assert not consumer.answering and not consumer.topics


class PlacedLate(Placed, type="c.placed_late", topic="orders"):
    pass


async def says_nothing(command, tx): ...  # type: ignore[no-untyped-def]


async def says_anything(command: Ordered, tx: Any) -> Any: ...


async def says_an_event(command: Ordered, tx: Any) -> Event:
    return Placed(order=command.order)


async def says_a_kind_of_it(command: Ordered, tx: Any) -> PlacedLate:
    return PlacedLate(order=command.order)


async def says_maybe(command: Ordered, tx: Any) -> Placed | None:
    return None


async def says_what_is_unknown(command: Ordered, tx: Any) -> Unknown: ...  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    "fine",
    [says_nothing, says_anything, says_an_event, says_a_kind_of_it, says_maybe, says_what_is_unknown],
)
def test_an_answer_that_may_be_the_reply_is_taken(fine: Any) -> None:
    consumer = Consumer("billing")
    assert consumer.answers(Ordered, Placed)(fine) is fine
