"""Small nested sagas, one per way in which branches get into each other's way."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

from milepost.sagas.definition import Definition
from milepost.sagas.shapes import all_of, at_least, loop, optional, when
from milepost.schemas.commands import Command
from milepost.schemas.events import Event
from milepost.schemas.options import Found, Probe, Repeat, Retry, Then

from tests.support.sagas import HOUR, Delivered, Order, add_step, new_saga

ONCE = Retry(attempts=1)


def nested() -> Iterator[tuple[str, Definition]]:
    """Every pair of things that may be going on at once, and choices and loops that go to a person."""
    yield "wait-and-never", _beside(_wait(Then.PERSON), _never)
    yield "wait-and-plain", _beside(_wait(Then.CANCEL), _plain)
    yield "lost-wait", _beside(_wait(Then.COMPENSATE), _plain)
    yield "no-undo", _beside(_failing, _plain)
    yield "optional", _of(lambda saga: (optional(_failing(saga, "it")), _wait(Then.CONTINUE)(saga, "w")))
    yield "at-least", _of(lambda saga: (at_least(1, _never(saga, "it"), _plain(saga, "other")),))
    yield (
        "at-least-beside-a-person",
        _of(lambda saga: (at_least(1, _persons(saga, "it"), _plain(saga, "other")),)),
    )
    yield (
        "at-least-and-on",
        _of(lambda saga: (at_least(1, _persons(saga, "it"), _plain(saga, "other")), _plain(saga, "then"))),
    )
    yield "choice", _of(lambda saga: (when(_raises, _plain(saga, "it")),))
    yield "way-past", _of(lambda saga: (when(_no, _plain(saga, "it")),))
    yield "loop", _of(lambda saga: (loop(_plain(saga, "it"), until=_no, at_most=1),))
    yield "choice-last", _of(lambda saga: (optional(_failing(saga, "it")), when(_no, _plain(saga, "other"))))
    yield (
        "choice-told",
        _of(lambda saga: (_wait(Then.CONTINUE)(saga, "it"), when(_no, _plain(saga, "other")))),
    )
    yield "loop-lost", _of(lambda saga: (loop(optional(_failing(saga, "it")), until=_no, at_most=1),))
    yield "loop-told", _of(lambda saga: (loop(_wait(Then.PERSON)(saga, "it"), until=_no, at_most=1),))
    yield "timer", _of(lambda saga: (all_of(saga.timer("it", HOUR), _plain(saga, "other")),))
    yield "timer-wrong", _of(lambda saga: (_plain(saga, "before"), saga.timer("it", _raises)))
    yield "command", _of(lambda saga: (_sent(saga, Repeat.SAFE, undo=True), _plain(saga, "it")))
    yield "command-never", _of(lambda saga: (_sent(saga, Repeat.NEVER, undo=True),))
    yield "command-alone", _of(lambda saga: (_sent(saga, Repeat.SAFE),))
    yield "command-asked", _of(lambda saga: (_sent(saga, Repeat.ASK_FIRST),))
    yield (
        "command-plain",
        _of(lambda saga: (all_of(_sent(saga, Repeat.SAFE, undo=True), _plain(saga, "it")),)),
    )
    yield "command-person", _of(lambda saga: (all_of(_sent(saga, Repeat.SAFE), _never(saga, "it")),))
    yield (
        "command-wait",
        _of(lambda saga: (all_of(_sent(saga, Repeat.SAFE), _wait(Then.CANCEL)(saga, "it")),)),
    )
    yield (
        "command-optional",
        _of(lambda saga: (optional(_sent(saga, Repeat.SAFE)), _wait(Then.PERSON)(saga, "it"))),
    )
    yield "command-no-undo", _of(lambda saga: (all_of(_sent(saga, Repeat.SAFE), _failing(saga, "it")),))
    yield "command-wrong", _of(lambda saga: (_sent(saga, Repeat.SAFE, _raises),))
    yield from _children()
    yield from _spreads()


class Booked(Event, type="truck.booked", topic="trucks", key="truck"):
    truck: str


class Book(Command[Booked], type="truck.book", topic="trucks", key="truck"):
    truck: str


async def _ask(ctx: Any) -> Probe[Booked]:
    return Found(Booked(truck="t"))


def _sent(saga: Any, repeat: Repeat, send: Any = None, *, undo: bool = False) -> Any:
    command = saga.command(
        "sent",
        send or (lambda v: Book(truck="t")),
        reply=Booked,
        timeout=HOUR,
        repeat=repeat,
        retry=Retry(attempts=2, within=None),
        no_undo=None if undo else "none needed",
    )
    if undo:

        async def cancel(ctx: Any, done: Any) -> None: ...

        command.undo(retry=Retry(attempts=2, within=None))(cancel)
    if repeat is Repeat.ASK_FIRST:
        command.probe(settle=timedelta(0))(_ask)

    return command


def _no(view: Any) -> bool:
    return False


def _raises(view: Any) -> bool:
    raise KeyError("x")


def _of(make: Any) -> Definition:
    saga = new_saga()
    saga.flow(*make(saga))
    return saga.definition


def _beside(one: Any, other: Any) -> Definition:
    return _of(lambda saga: (all_of(one(saga, "it"), other(saga, "other")),))


def _plain(saga: Any, name: str) -> Any:
    return add_step(saga, name, retry=ONCE, undo=True, undo_retry=ONCE)


def _never(saga: Any, name: str) -> Any:
    return add_step(saga, name, Repeat.NEVER, retry=ONCE, undo=True, undo_retry=ONCE)


def _persons(saga: Any, name: str) -> Any:
    return add_step(saga, name, retry=ONCE, on_failure=Then.PERSON, no_undo="none needed")


def _failing(saga: Any, name: str) -> Any:
    return add_step(saga, name, retry=ONCE, on_failure=Then.FAIL, no_undo="none needed")


def _wait(then: Any) -> Any:
    return lambda saga, name: saga.wait(
        name, Delivered, match=lambda v: v.input.id, timeout=HOUR, on_timeout=then
    )


def _child_saga() -> Any:
    saga = new_saga("child")
    add_step(saga, "work")
    saga.flow(*saga.nodes)
    return saga


def _started(saga: Any, given: Any = None, **options: Any) -> Any:
    made = given or (lambda v: Order(id=f"{v.input.id}-child"))
    return saga.child("sub", _child_saga(), input=made, **({"no_undo": "none needed"} | options))


def _asked(saga: Any, name: str) -> Any:
    wait = _wait(Then.RECONCILE)(saga, name)
    wait.probe(_found)
    return wait


async def _found(ctx: Any) -> Probe[Delivered]:
    return Found(Delivered(id="x"))


async def _items(ctx: Any) -> AsyncIterator[Order]:
    for name in ("a", "b"):
        yield Order(id=name)


def spread(saga: Any, **options: Any) -> Any:
    """Add a fan-out of which half the items have to succeed."""
    chosen = {"min_success": 0.5, "retry": ONCE, "no_undo": "none needed"} | options
    return saga.each("spread", _child_saga(), items=_items, **chosen)


def _undone(saga: Any, **options: Any) -> Any:
    node = spread(saga, no_undo=None, **options)
    node.undo(retry=ONCE)(_take_back)
    return node


async def _take_back(ctx: Any, done: Any) -> None: ...


def _spreads() -> Iterator[tuple[str, Definition]]:
    yield "each", _of(lambda saga: (_plain(saga, "it"), spread(saga)))
    yield "each-alone", _of(lambda saga: (spread(saga, retry=Retry(attempts=2)),))
    yield "each-first", _of(lambda saga: (spread(saga), _plain(saga, "it")))
    yield "each-person", _of(lambda saga: (spread(saga, on_failure=Then.PERSON),))
    yield "each-undone", _of(lambda saga: (_undone(saga), _plain(saga, "it")))
    yield "each-undone-person", _of(lambda saga: (_undone(saga, on_failure=Then.PERSON),))
    yield "each-beside", _of(lambda saga: (all_of(spread(saga), _plain(saga, "it")),))
    yield "each-wait", _of(lambda saga: (all_of(spread(saga), _wait(Then.CANCEL)(saga, "it")),))
    yield "each-optional", _of(lambda saga: (optional(spread(saga)), _wait(Then.PERSON)(saga, "it")))
    yield "each-least", _of(lambda saga: (at_least(1, spread(saga), _plain(saga, "it")),))
    yield "each-no-undo", _of(lambda saga: (all_of(spread(saga), _failing(saga, "it")),))
    yield "each-loop", _of(lambda saga: (loop(spread(saga), until=_no, at_most=1),))
    yield "each-choice", _of(lambda saga: (spread(saga), when(_raises, _plain(saga, "it"))))
    yield "each-then-optional", _of(lambda saga: (spread(saga), optional(_failing(saga, "it"))))
    yield "each-reconciled", _of(lambda saga: (spread(saga), _asked(saga, "it")))
    yield "each-told", _of(lambda saga: (spread(saga), _wait(Then.CONTINUE)(saga, "it")))


def _children() -> Iterator[tuple[str, Definition]]:
    yield "child", _of(lambda saga: (_plain(saga, "it"), _started(saga)))
    yield "child-alone", _of(lambda saga: (_started(saga),))
    yield "child-person", _of(lambda saga: (_started(saga, on_failure=Then.PERSON),))
    yield "child-beside", _of(lambda saga: (all_of(_started(saga), _plain(saga, "it")),))
    yield "child-never", _of(lambda saga: (all_of(_started(saga), _never(saga, "it")),))
    yield "child-wait", _of(lambda saga: (all_of(_started(saga), _wait(Then.CANCEL)(saga, "it")),))
    yield "child-optional", _of(lambda saga: (optional(_started(saga)), _wait(Then.PERSON)(saga, "it")))
    yield "child-least", _of(lambda saga: (at_least(1, _started(saga), _plain(saga, "it")),))
    yield "child-no-undo", _of(lambda saga: (all_of(_started(saga), _failing(saga, "it")),))
    yield "child-wrong", _of(lambda saga: (_started(saga, _raises),))
