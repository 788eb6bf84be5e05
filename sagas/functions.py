"""What a user's function has to be: async, callable as it is called, and of a result that can be stored."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_type_hints

from pydantic import BaseModel

from ..schemas.errors import DefinitionError
from .specs import AsyncFn

if TYPE_CHECKING:
    from .saga import Saga

F = TypeVar("F", bound=Callable[..., Any])


def check_async(title: str, what: str, fn: object) -> None:
    """Refuse a function that is not `async def`.

    Raises:
        DefinitionError: MP107.
    """
    if not callable(fn):
        raise DefinitionError("MP107", f"{title}, {what}: {fn!r} is no function. Decorate an async function.")
    plain = inspect.unwrap(fn)
    if not (
        inspect.iscoroutinefunction(plain)
        or inspect.iscoroutinefunction(type(plain).__dict__.get("__call__"))
    ):
        raise DefinitionError(
            "MP107",
            f"{title}, {what}: {getattr(fn, '__name__', fn)} is no async function. Write async def; call blocking code "
            "with asyncio.to_thread.",
        )


def check_parameters(title: str, what: str, fn: AsyncFn, *takes: str) -> None:
    """Refuse a function that cannot be called with as many arguments as it will be.

    Raises:
        DefinitionError: MP117.
    """
    try:
        inspect.signature(fn).bind(*takes)
    except TypeError as error:
        raise DefinitionError(
            "MP117",
            f"{title}, {what}: it is called with ({', '.join(takes)}), and that does not fit: {error}. "
            f"Write async def {getattr(fn, '__name__', 'name')}({', '.join(takes)}).",
        ) from None


def check_function(place: str, option: str, fn: object, takes: str, returns: str) -> None:
    """Refuse something that is no function where a pure one belongs.

    Args:
        place: The saga, and the node when it is a node's option.
        takes: What it is called with, as in the example of the message.
        returns: Such an example's body.

    Raises:
        DefinitionError: MP113.
    """
    if not callable(fn):
        raise DefinitionError(
            "MP113",
            f"{place}: {option}={fn!r} must be a function. Write {option}=lambda {takes}: {returns}.",
        )


def with_brackets(method: F) -> F:
    """Let a decorator that takes options say that it needs its brackets when it was written without them.

    Raises:
        DefinitionError: MP117, when called.
    """

    @functools.wraps(method)
    def called(saga: Saga[Any], *given: Any, **options: Any) -> Any:
        if given and callable(given[0]):
            word, fn = method.__name__, getattr(given[0], "__name__", repr(given[0]))
            options_of = "repeat=Repeat.SAFE" if word == "step" else ""
            raise DefinitionError(
                "MP117",
                f"{saga.title}: @{saga.name}.{word} above {fn} needs brackets. Write @saga.{word}({options_of}).",
            )
        return method(saga, *given, **options)

    return cast(F, called)


def result_class(title: str, name: str, fn: AsyncFn) -> type[BaseModel] | None:
    """Return the class that a step's function declares to return, or None for None.

    Raises:
        DefinitionError: MP107 when it declares nothing, a name that cannot be found, or no pydantic model.
    """
    plain = inspect.unwrap(fn)

    def only_return() -> None: ...

    try:
        written = getattr(plain, "__annotations__", {}).get("return", inspect.Signature.empty)
        only_return.__annotations__ = {"return": written}
        declared = get_type_hints(only_return, globalns=getattr(plain, "__globals__", {})).get("return")
    except NameError as error:
        raise DefinitionError(
            "MP107",
            f"{title}, step {name}: the class that it returns cannot be found ({error}). Import or define it at module "
            "level, not under TYPE_CHECKING.",
        ) from error
    if written is not inspect.Signature.empty:
        if declared is type(None):
            return None
        if inspect.isclass(declared) and issubclass(declared, BaseModel):
            return declared
    found = "nothing" if written is inspect.Signature.empty else repr(declared)
    raise DefinitionError(
        "MP107",
        f"{title}, step {name}: it must be annotated to return a pydantic model or None, so that its result can be "
        f"stored and read back; found {found}.",
    )
