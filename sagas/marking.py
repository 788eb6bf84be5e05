"""A result that a person gives by hand, held to the class that the step declares."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from ..schemas.errors import MilepostError
from .definition import Definition, Node, encode_result
from .model import Json
from .words import clean


def checked(definition: Definition, node: Node, result: Json) -> tuple[Json, str]:
    """Return a result as it is stored and '', or None and what is wrong with it; its values are never named."""
    try:
        if node.result is None:
            return (
                (None, "") if result is None else (None, f"{node.name} has no result, so none may be given")
            )
        return encode_result(definition, node, node.decode(result)), ""
    except ValidationError as error:
        return None, clean(f"the result is no {_class(node)}: {'; '.join(map(_fault, error.errors()))}")
    except MilepostError as error:
        return None, clean(str(error))
    except Exception as error:  # a user's validator may raise anything, and every fact has an answer
        return None, f"the result is no {_class(node)}: reading it raised {type(error).__name__}"


def _class(node: Node) -> str:
    return "None" if node.result is None else node.result.__name__


def _fault(error: Any) -> str:
    place = ".".join(map(str, error["loc"]))
    return f"{place}: {error['msg']}" if place else str(error["msg"])
