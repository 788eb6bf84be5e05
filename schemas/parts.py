"""Looking into the values that users give: models, mappings, sequences, dataclasses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass

from pydantic import BaseModel, Secret, SecretBytes, SecretStr, ValidationError

SECRETS = (SecretStr, SecretBytes, Secret)


def parts_of(value: object) -> Iterable[tuple[object, object]]:
    """Return what is directly inside a value, each with its name or place; nothing for a simple value."""
    if isinstance(value, BaseModel):
        return value
    if isinstance(value, Mapping):
        return value.items()
    if isinstance(value, list | tuple | set | frozenset):
        return enumerate(value)
    if is_dataclass(value) and not isinstance(value, type):
        return ((field.name, getattr(value, field.name)) for field in fields(value))
    return ()


def secret_in(value: object, path: str = "") -> tuple[str, str] | None:
    """Return where the first of pydantic's secrets is in a value, and its class; None without any."""
    if isinstance(value, SECRETS):
        return path or "its value", type(value).__name__
    inner = (secret_in(part, f"{path}.{name}".lstrip(".")) for name, part in parts_of(value))
    return next((found for found in inner if found is not None), None)


def faults_of(model: type[BaseModel], error: Exception) -> str:
    """Say where a body does not fit a model and how, but nothing that it holds.

    Names of its own and the words of a user's validators may be a customer's: of the first only those that the model
    declares are told, of the second none.
    """
    if not isinstance(error, ValidationError):
        return type(error).__name__
    found = error.errors(include_url=False, include_context=False, include_input=False)
    own = model.model_fields.keys()
    return ", ".join(
        f"{item['loc'][0] if item['loc'] and item['loc'][0] in own else 'body'}: {item['type']}"
        for item in found[:20]
    )
