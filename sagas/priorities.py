"""How soon a run's work is taken: fixed at its start, by the definition or by a function of the input."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel

from ..schemas.errors import DefinitionError, UsageError
from ..schemas.states import Priority
from .definition import Definition
from .model import Json


def check(definition: Definition) -> None:
    """Refuse a priority that is none.

    Raises:
        DefinitionError: MP126.
    """
    given = definition.priority
    if not isinstance(given, Priority) and not callable(given):
        raise DefinitionError(
            "MP126",
            f"{definition.title}: priority={given!r} must be a Priority (HIGH, NORMAL, LOW) or a function of the input "
            "that returns one.",
        )


def possible(definition: Definition) -> Sequence[Priority]:
    """Return the priorities that runs of a definition can have."""
    return (definition.priority,) if isinstance(definition.priority, Priority) else tuple(Priority)


def of_input(definition: Definition, value: BaseModel) -> Priority:
    """Return the priority of a run with this input.

    Raises:
        UsageError: MP358 when the function raised or returned something else.
    """
    if isinstance(definition.priority, Priority):
        return definition.priority
    try:
        found = definition.priority(value)
    except Exception as error:
        raise UsageError(
            "MP358",
            f"{definition.title}: priority= raised {type(error).__name__}: {error}. It has to return a Priority for "
            "every input; nothing was started.",
        ) from error
    if not isinstance(found, Priority):
        raise UsageError(
            "MP358",
            f"{definition.title}: priority= returned {found!r}. Return Priority.HIGH, NORMAL or LOW; nothing was "
            "started.",
        )
    return found


def policy(definition: Definition) -> list[Json]:
    """Return what of it belongs to the policy fingerprint; nothing where nothing was said."""
    if definition.priority is Priority.NORMAL:
        return []
    given = definition.priority
    return [{"priority": given.value if isinstance(given, Priority) else "by input"}]
