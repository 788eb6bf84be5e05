"""Reading what an earlier try of a step said about how far it had come."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, ValidationError

from ..schemas.errors import UsageError
from . import codec
from .model import Json

T = TypeVar("T")


def read_progress(kind: type[T], stored: Json, place: str) -> T | None:
    """Return stored progress as its class, None when there is none.

    Args:
        kind: A pydantic model.
        stored: As the heartbeat stored it.
        place: For error texts, for example "order v1, step pack".

    Raises:
        UsageError: MP373 when it is not of that class.
    """
    if not issubclass(kind, BaseModel):
        raise UsageError(
            "MP373",
            f"{place}: progress({kind.__name__}) is no pydantic model. Name the class that heartbeat had.",
        )
    if stored is None:
        return None
    try:
        found: T = codec.decode(kind, stored)
    except ValidationError as error:
        raise UsageError(
            "MP373",
            f"{place}: what an earlier try said of its progress is no {kind.__name__} ({error.error_count()} fields do "
            "not fit). Give new fields a default, or read it as the class that it was written with.",
        ) from None
    return found
