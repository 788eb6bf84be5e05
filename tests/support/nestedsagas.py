"""Small nested sagas, one per way in which branches get into each other's way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from milepost.sagas.definition import Definition
from milepost.sagas.shapes import all_of, at_least, loop, optional, when
from milepost.schemas.options import Repeat, Retry, Then

from tests.support.sagas import HOUR, Delivered, add_step, new_saga

ONCE = Retry(attempts=1)


def nested() -> Iterator[tuple[str, Definition]]:
    """Every pair of things that may be going on at once, and choices and loops that go to a person."""
    yield "wait-and-never", _beside(_wait(Then.PERSON), _never)
    yield "wait-and-plain", _beside(_wait(Then.CANCEL), _plain)
    yield "lost-wait", _beside(_wait(Then.COMPENSATE), _plain)
    yield "no-undo", _beside(_failing, _plain)
    yield "optional", _of(lambda saga: (optional(_plain(saga, "it")), _wait(Then.CONTINUE)(saga, "w")))
    yield "at-least", _of(lambda saga: (at_least(1, _never(saga, "it"), _plain(saga, "other")),))
    yield "choice", _of(lambda saga: (when(_raises, _plain(saga, "it")),))
    yield "way-past", _of(lambda saga: (when(_no, _plain(saga, "it")),))
    yield "loop", _of(lambda saga: (loop(_plain(saga, "it"), until=_no, at_most=1),))
    yield "choice-last", _of(lambda saga: (optional(_plain(saga, "it")), when(_no, _plain(saga, "other"))))
    yield (
        "choice-told",
        _of(lambda saga: (_wait(Then.CONTINUE)(saga, "it"), when(_no, _plain(saga, "other")))),
    )
    yield "loop-lost", _of(lambda saga: (loop(optional(_plain(saga, "it")), until=_no, at_most=1),))
    yield "loop-told", _of(lambda saga: (loop(_wait(Then.PERSON)(saga, "it"), until=_no, at_most=1),))


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


def _failing(saga: Any, name: str) -> Any:
    return add_step(saga, name, retry=ONCE, on_failure=Then.FAIL, no_undo="none needed")


def _wait(then: Any) -> Any:
    return lambda saga, name: saga.wait(
        name, Delivered, match=lambda v: v.input.id, timeout=HOUR, on_timeout=then
    )
