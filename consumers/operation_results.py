"""Requests and results of operations as they are kept: of a request a hash, of a result its JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Any, Generic

from pydantic import BaseModel, PydanticUserError, ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from ..inbox.operation_model import Ending, Operation, OperationState
from ..sagas import codec
from ..sagas.words import clean
from ..schemas.errors import StateError, UsageError
from ..schemas.options import R


def fingerprint_of(request: BaseModel, place: str) -> bytes:
    """Return SHA-256 of the normalised request: canonical JSON, sets sorted, fields that have their default left out.

    So a field that is added with a default changes no fingerprint of before. Nothing else of the request is kept.

    Raises:
        UsageError: MP463 when it cannot be written as JSON, or holds a secret, which JSON would only show masked.
    """
    try:
        if _has_secret(type(request)):
            raise UsageError(
                "MP463",
                f"{place}: request {type(request).__name__} holds a SecretStr or SecretBytes, which reads the same "
                "whatever it is. Leave it out of the request: it does not say what is to be done.",
            )
        plain = _sorted(request.model_dump(mode="python", by_alias=True, exclude_defaults=True))
        return codec.digest(plain)
    except (ValueError, PydanticUserError, PydanticSerializationError) as error:
        raise UsageError("MP463", f"{place}: request cannot be written as JSON: {error}") from error


@lru_cache(maxsize=1024)
def _has_secret(model: type[BaseModel]) -> bool:
    return codec.has_secret(codec.shape_of(model))


def _sorted(value: Any) -> Any:
    """Return JSON in which what has no order has one."""
    if isinstance(value, set | frozenset):
        return sorted((_sorted(part) for part in value), key=codec.canonical_json)
    if isinstance(value, Mapping):
        return {to_jsonable_python({name: None}).popitem()[0]: _sorted(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_sorted(part) for part in value]
    return to_jsonable_python(value)


@dataclass(frozen=True)
class Results(Generic[R]):
    """The results of one kind of operation.

    Args:
        place: What the operation is called in texts.
        kind: The declared class.
        most: Largest result, in bytes of JSON.
    """

    place: str
    kind: type[R]
    most: int

    def success(self, value: R, keep: timedelta) -> Ending:
        """Return the ending for a result; its fields resource_type and resource_id are kept in columns of their own.

        Raises:
            UsageError: MP464 when it is none of the declared class, cannot be kept, or is too large.
        """
        resource, resource_id = getattr(value, "resource_type", None), getattr(value, "resource_id", None)
        return Ending(
            state=OperationState.SUCCEEDED,
            keep=keep,
            result=self._encoded(value),
            resource_type=clean(resource, 200) if isinstance(resource, str) else None,
            resource_id=clean(resource_id, 500) if isinstance(resource_id, str) else None,
        )

    def _encoded(self, value: Any) -> str | None:
        wanted: Any = self.kind
        if not isinstance(value, wanted):
            raise UsageError(
                "MP464",
                f"{self.place}: it returned {type(value).__name__}, and result={wanted.__name__} was said.",
            )
        if value is None:
            return None
        try:
            text = codec.canonical_json(codec.encode(wanted, value, self.place)).decode()
        except UsageError as error:
            raise UsageError("MP464", error.text) from error
        if (size := len(text.encode())) > self.most:
            raise UsageError(
                "MP464",
                f"{self.place}: a result of {size} bytes is over MILEPOST_MAX_RESULT_BYTES={self.most}. Return a "
                "reference, and keep the data elsewhere.",
            )
        return text

    def decoded(self, record: Operation) -> R:
        """Read a stored result.

        Raises:
            StateError: MP459 when it is none of the declared class any more.
        """
        wanted: Any = self.kind
        try:
            stored = None if record.result is None else json.loads(record.result)
            found: Any = None if wanted is type(None) else codec.decode(wanted, stored)
        except ValidationError as error:
            raise StateError(
                "MP459",
                f"{self.place} has been done, and its stored result is no {wanted.__name__} any more (operation "
                f"{record.id}). Let the class read what was stored, or give what it now means a kind of its own.",
            ) from error
        value: R = found
        return value
