"""What declaring a node checks: names that topics and keys can hold, functions that can be called."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel

from ..schemas.errors import DefinitionError
from ..schemas.options import Repeat
from ..schemas.states import StepKind
from .functions import check_async, check_parameters, result_class
from .nodes import Step

if TYPE_CHECKING:
    from .saga import Saga

I = TypeVar("I", bound=BaseModel)  # noqa: E741
R = TypeVar("R", bound=BaseModel | None)

SAGA_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,99}")
NODE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")
QUEUE_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")


def declare_step(
    saga: Saga[I],
    fn: Callable[..., Awaitable[R]],
    *,
    kind: StepKind,
    name: str | None,
    repeat: Repeat,
    queue: str | None = None,
    **options: Any,
) -> Step[I, R]:
    """Check a step's function and name, and add the step to its saga.

    Args:
        kind: STEP or TX.
        name: Instead of the function's name.
        options: What else `Step` takes.

    Raises:
        DefinitionError: MP107, MP110, MP111, MP114, MP117, MP118.
    """
    own = name if name is not None else getattr(fn, "__name__", "")
    what = f"step {own}"
    saga.open_for(what)
    check_async(saga.title, what, fn)
    check_parameters(saga.title, what, fn, *(("ctx", "tx") if kind is StepKind.TX else ("ctx",)))
    if not isinstance(repeat, Repeat):
        raise DefinitionError(
            "MP118",
            f"{saga.title}, {what}: repeat={repeat!r} is none of Repeat.SAFE (the other side dedupes on "
            "ctx.idempotency_key), Repeat.ASK_FIRST (ask the probe first) and Repeat.NEVER (ask a person).",
        )
    if queue is not None:
        check_name(f"{saga.title}, {what}: queue", queue, QUEUE_NAME)
    step: Step[I, R] = Step(
        saga,
        own,
        kind=kind,
        fn=fn,
        result=result_class(saga.title, own, fn),
        repeat=repeat,
        queue=queue,
        **options,
    )
    saga.take_name(own, what)
    saga.nodes.append(step)
    return step


def check_name(what: str, name: str, pattern: re.Pattern[str]) -> None:
    """Refuse a name that topics or keys cannot carry.

    Raises:
        DefinitionError: MP114.
    """
    if not pattern.fullmatch(name):
        raise DefinitionError(
            "MP114",
            f"{what} {name!r} does not fit: it must match {pattern.pattern}, because topics and keys carry it.",
        )
