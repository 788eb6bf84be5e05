"""Fingerprints of runs: what a result rests on, as a hash, so that equal work need not be done twice."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import BaseModel

from ..schemas.errors import DefinitionError, UsageError
from .codec import canonical_json
from .definition import Definition
from .model import Json


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What a run rests on.

    Attributes:
        sha256: Of the saga's name, version and shape together with the parts.
        parts: As the saga's function named them: task, commit, prompt version and the like.
    """

    sha256: bytes
    parts: Mapping[str, Json]


def check(definition: Definition) -> None:
    """Refuse a fingerprint that cannot be asked.

    Raises:
        DefinitionError: MP128.
    """
    if definition.fingerprint is not None and not callable(definition.fingerprint):
        raise DefinitionError(
            "MP128",
            f"{definition.title}: fingerprint={definition.fingerprint!r} is no function of the input. Write "
            'fingerprint=lambda given: {"task": given.task, "commit": given.commit}.',
        )


def of_input(definition: Definition, value: BaseModel) -> Fingerprint | None:
    """Return the fingerprint of a run with this input; None for a saga that declares none.

    Raises:
        UsageError: MP368 when the function raised or returned no parts that can be stored.
    """
    if definition.fingerprint is None:
        return None
    try:
        parts = dict(definition.fingerprint(value))
        _plain(parts)
        named = {
            "saga": definition.name,
            "version": definition.version,
            "shape": definition.shape,
            "parts": parts,
        }
        return Fingerprint(hashlib.sha256(canonical_json(named)).digest(), parts)
    except Exception as error:
        raise UsageError(
            "MP368",
            f"{definition.title}: fingerprint= gave nothing that can be compared: {type(error).__name__}: {error}. It "
            "has to return a mapping of names to texts, numbers, booleans or None for every input.",
        ) from error


def _plain(parts: Mapping[str, Json]) -> None:
    if not parts:
        raise ValueError("there are no parts")
    for name, part in parts.items():
        if not isinstance(name, str) or not isinstance(part, str | int | float | bool | None):
            raise TypeError(f"{name!r} is {type(part).__name__}")
        if "\x00" in name or (isinstance(part, str) and "\x00" in part):
            raise ValueError(f"{name!r} holds the character U+0000")


def differing(before: Mapping[str, Json], now: Mapping[str, Json]) -> list[str]:
    """Return the names of the parts that differ, in order."""
    nothing = object()
    return sorted(n for n in before.keys() | now.keys() if before.get(n, nothing) != now.get(n, nothing))
