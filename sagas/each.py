"""Declaring a fan-out: `saga.each(…)`, what it may say, and what it adds to a definition."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pydantic import BaseModel

from ..schemas.errors import DefinitionError
from ..schemas.fanout import FanOut
from ..schemas.options import OnFailure, Repeat, Retry
from ..schemas.states import StepKind
from .context import Context
from .declaring import QUEUE_NAME, check_name
from .definition import Node
from .functions import check_parameters
from .model import Json
from .nodes import Step
from .specs import AsyncFn, EachSpec

if TYPE_CHECKING:
    from .saga import Saga

I = TypeVar("I", bound=BaseModel)  # noqa: E741
J = TypeVar("J", bound=BaseModel)

#: Most items that may be under way at once: so many runs may be started, or stopped, in one go.
MOST_AT_ONCE = 10_000


class EachStep(Step[I, FanOut]):
    """A run of another saga for each item of a list, and how they end together."""

    def __init__(
        self,
        saga: Saga[I],
        name: str,
        spec: EachSpec,
        *,
        retry: Retry,
        attempt_timeout: timedelta,
        on_failure: OnFailure | None,
        no_undo: str | None,
        irreversible: bool,
        queue: str | None,
    ) -> None:
        super().__init__(
            saga,
            name,
            kind=StepKind.EACH,
            fn=None,
            result=FanOut,
            repeat=Repeat.SAFE,
            retry=retry,
            attempt_timeout=attempt_timeout,
            on_failure=on_failure,
            no_undo=no_undo,
            irreversible=irreversible,
            queue=queue,
        )
        self.each = spec


def declare(
    saga: Saga[I],
    name: str,
    items_saga: Saga[J],
    *,
    items: Callable[[Context[I]], AsyncIterator[J]],
    concurrency: int,
    min_success: float,
    queue: str | None,
    **options: Any,
) -> EachStep[I]:
    """Add a fan-out to its saga.

    Raises:
        DefinitionError: MP110, MP111, MP114, MP117, MP142.
    """
    what = f"each {name}"
    saga.open_for(what)
    _check_items(f"{saga.title}, {what}", items)
    check_parameters(saga.title, what, cast(AsyncFn, items), "ctx")
    if queue is not None:
        check_name(f"{saga.title}, {what}: queue", queue, QUEUE_NAME)
    spec = EachSpec(saga=items_saga, items=items, concurrency=concurrency, min_success=min_success)
    node: EachStep[I] = EachStep(saga, name, spec, queue=queue, **options)
    saga.take_name(name, what)
    saga.nodes.append(node)
    return node


def _check_items(place: str, items: object) -> None:
    plain = inspect.unwrap(items) if callable(items) else items
    if not callable(items) or inspect.iscoroutinefunction(plain) or inspect.isgeneratorfunction(plain):
        raise DefinitionError(
            "MP142",
            f"{place}: items={getattr(items, '__name__', items)} does not yield asynchronously. Write an async "
            "generator: async def with yield in it.",
        )


def check(place: str, node: Node) -> None:
    """Refuse a fan-out that starts nothing, or asks for more than all.

    Raises:
        DefinitionError: MP143 or MP144.
    """
    spec = node.each
    if spec is None:
        return
    if type(spec.concurrency) is not int or not 1 <= spec.concurrency <= MOST_AT_ONCE:
        raise DefinitionError(
            "MP143",
            f"{place}: concurrency={spec.concurrency!r} must be a whole number from 1 to {MOST_AT_ONCE}, which is "
            "how many items are under way at once.",
        )
    share = spec.min_success
    if type(share) not in {int, float} or not 0 <= share <= 1:
        raise DefinitionError(
            "MP144",
            f"{place}: min_success={share!r} must be from 0 to 1: the share of items that has to succeed, such as "
            "0.95. 1.0 asks for all of them, 0 for none.",
        )


def policy(node: Node) -> dict[str, Json]:
    """Return what the policy fingerprint holds of a fan-out; nothing where there is none."""
    spec = node.each
    return {} if spec is None else {"each": [spec.concurrency, float(spec.min_success)]}
