"""JSON of inputs and results, and the fingerprints that pin a definition."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from pydantic import BaseModel, TypeAdapter

from ..schemas.errors import UsageError
from ..schemas.masking import MASK
from ..schemas.parts import secret_in
from .model import Json

#: Keywords of JSON Schema whose values are maps from the user's names to schemas.
_NAME_MAPS = frozenset({"properties", "$defs", "patternProperties", "dependentSchemas"})
#: Words for people; changing them changes no stored value.
_WORDS = frozenset({"title", "description", "examples"})
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
#: How JSON writes the character U+0000, which a text may also quote.
_NUL = b"\\u0000"
_MASK = MASK.encode()


@lru_cache(maxsize=4096)
def _adapter(model: type[BaseModel]) -> TypeAdapter[Any]:
    return TypeAdapter(model)


def canonical_json(value: Json) -> bytes:
    """Return JSON with sorted keys and without spaces, in UTF-8: equal values give equal bytes.

    Raises:
        ValueError: For NaN, infinity or a lone surrogate, which JSON cannot hold.
    """
    return _CANONICAL.encode(value).encode()


def digest(value: Json) -> bytes:
    """Return the SHA-256 of the canonical JSON."""
    return digest_of(canonical_json(value))


def digest_of(canonical: bytes) -> bytes:
    """Return the SHA-256 of JSON that is canonical already."""
    return hashlib.sha256(canonical).digest()


def encode(model: type[BaseModel], value: BaseModel, place: str) -> Json:
    """Return a model as JSON that a jsonb column can hold and `decode` reads back; see `encode_both`."""
    return encode_both(model, value, place)[0]


def encode_both(model: type[BaseModel], value: BaseModel, place: str) -> tuple[Json, bytes]:
    """Return a model as JSON that a jsonb column can hold and `decode` reads back, and its canonical bytes.

    Args:
        model: Declared class; fields that only a subclass has are left out.
        value: An instance of it.
        place: For error texts, for example "order v1, step pack: result".

    Raises:
        UsageError: MP342 when it holds a character, number or secret that cannot be stored.
    """
    encoded = _adapter(model).dump_python(value, mode="json", by_alias=True, round_trip=True)
    try:
        canonical = canonical_json(encoded)
    except ValueError as error:
        raise UsageError(
            "MP342", f"{place} cannot be stored as JSON: {error}. Replace the value before returning it."
        ) from error
    # The class was looked at when the saga was declared; here is what a field of any class holds.
    masked = _MASK in canonical and _holds(encoded, lambda text: text == MASK)
    if masked and (found := secret_in(value)) is not None:
        raise UsageError(
            "MP342",
            f"{place}, field {found[0]} is a {found[1]}, which would be stored as asterisks. Put a reference to the "
            "secret there instead, and fetch it in the step.",
        )
    if _NUL in canonical and _holds(encoded, lambda text: "\x00" in text):
        raise UsageError(
            "MP342",
            f"{place} holds the character U+0000, which PostgreSQL cannot store. Remove it before returning.",
        )
    return encoded, canonical


def decode(model: type[BaseModel], value: Json) -> Any:
    """Read JSON back as the model.

    Raises:
        pydantic.ValidationError: When it is not of that model.
    """
    return _adapter(model).validate_json(canonical_json(value))


def storable(value: Json) -> bool:
    """Whether a jsonb column can hold this: no U+0000, no lone surrogate, no number that is none, not too deep."""
    try:
        canonical_json(value)
        return not _holds(value, lambda text: "\x00" in text)
    except (ValueError, RecursionError):
        return False


def _holds(value: Json, is_it: Callable[[str], bool]) -> bool:
    """Whether any text in JSON, names included, is what is looked for."""
    if isinstance(value, str):
        return is_it(value)
    if isinstance(value, Mapping):
        return any(_holds(part, is_it) for pair in value.items() for part in pair)
    if isinstance(value, list | tuple):
        return any(_holds(part, is_it) for part in value)
    return False


def shape_of(model: type[BaseModel] | None) -> Json:
    """Return the JSON Schema of a model without titles and descriptions, None for None."""
    return None if model is None else _without_words(_adapter(model).json_schema(mode="validation"))


def _without_words(schema: Json) -> Json:
    if isinstance(schema, list):
        return [_without_words(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: {name: _without_words(part) for name, part in value.items()}
        if key in _NAME_MAPS and isinstance(value, dict)
        else value
        if key in {"const", "default", "enum"}
        else _without_words(value)
        for key, value in schema.items()
        if key not in _WORDS
    }


def has_secret(schema: Json) -> bool:
    """Whether a schema has a field of pydantic's SecretStr or SecretBytes (they dump as asterisks)."""
    if isinstance(schema, dict):
        return schema.get("writeOnly") is True or any(has_secret(part) for part in schema.values())
    return isinstance(schema, list) and any(has_secret(part) for part in schema)
