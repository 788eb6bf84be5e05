"""Older inputs of a saga: a stored input is read by the class that it was stored as, and brought up class by class."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_type_hints

from pydantic import BaseModel

from ..schemas.errors import DefinitionError
from . import codec
from .model import Json

if TYPE_CHECKING:
    from .definition import Definition


@dataclass(frozen=True, slots=True)
class InputUpcast:
    """How an input of one version becomes one of the next.

    Attributes:
        version: The version that it takes, from 1.
        old: Class of that version.
        new: Class that it returns.
    """

    version: int
    old: type[BaseModel]
    new: type[BaseModel]
    fn: Callable[[Any], Any]


def declared(title: str, fn: Callable[..., Any], version: int) -> InputUpcast:
    """Read from which class to which a function leads.

    Raises:
        DefinitionError: MP119 when its annotations do not say so.
    """
    name = getattr(fn, "__name__", repr(fn))
    classes: list[Any]
    try:
        hints = get_type_hints(inspect.unwrap(fn))
        parameters = list(inspect.signature(fn).parameters)
        classes = [hints.get(parameters[0]), hints.get("return")] if len(parameters) == 1 else []
    except (NameError, TypeError, ValueError):
        classes = []
    if inspect.iscoroutinefunction(fn) or not classes or not all(_is_model(found) for found in classes):
        raise DefinitionError(
            "MP119",
            f"{title}: upcast_input(from_version={version}) needs a plain function of one annotated argument, from the "
            f"class of version {version} to that of version {version + 1}: def {name}(old: OldInput) -> NewInput.",
        )
    old, new = classes
    return InputUpcast(version, old, new, fn)


def _is_model(found: object) -> bool:
    return inspect.isclass(found) and issubclass(found, BaseModel)


def chain(
    title: str, upcasts: Sequence[InputUpcast], input_class: type[BaseModel]
) -> tuple[InputUpcast, ...]:
    """Put upcasters in order, and refuse a chain that does not lead from version 1 to the saga's input.

    Raises:
        DefinitionError: MP119.
    """
    ordered = tuple(sorted(upcasts, key=lambda upcast: upcast.version))
    versions = [upcast.version for upcast in ordered]
    if versions != list(range(1, len(ordered) + 1)):
        raise DefinitionError(
            "MP119",
            f"{title}: its upcasters take versions {', '.join(map(str, versions))} of the input. Each version from 1 "
            "on needs exactly one; the saga's own input class is the version after the last.",
        )
    following = [*(upcast.old for upcast in ordered), input_class][1:]
    for upcast, wanted in zip(ordered, following, strict=True):
        if upcast.new is not wanted:
            raise DefinitionError(
                "MP119",
                f"{title}: upcast_input(from_version={upcast.version}) returns {upcast.new.__name__}, but version "
                f"{upcast.version + 1} of the input is {wanted.__name__}.",
            )
    return ordered


def brought_up(definition: Definition, value: Json, version: int) -> BaseModel:
    """Read a stored input of a version as the saga's input class.

    Raises:
        pydantic.ValidationError: When it is not of that version's class.
        DefinitionError: MP119 when an upcaster raises, or returns another class than it says.
    """
    steps = definition.upcasts[version - 1 :]
    found: Any = codec.decode(steps[0].old if steps else definition.input, value)
    for step in steps:
        try:
            found = step.fn(found)
        except Exception as error:  # the user's code may raise anything
            raise DefinitionError(
                "MP119",
                f"{definition.title}: its upcaster of inputs from version {step.version} raised "
                f"{type(error).__name__}. It must take every input that was ever stored; see the run's input.",
            ) from error
        if not isinstance(found, step.new):
            raise DefinitionError(
                "MP119",
                f"{definition.title}: its upcaster of inputs from version {step.version} returned "
                f"{type(found).__name__}, not {step.new.__name__}.",
            )
    return found  # type: ignore[no-any-return]
