"""References to artifacts: what a run keeps of big data, and how it is found in results."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from .errors import ConnectError, StateError

#: A name is a relative path of plain segments, because it is part of a file's or an object's name.
_SEGMENT = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
NAME = re.compile(rf"{_SEGMENT}(?:/{_SEGMENT})*")
LONGEST_NAME = 200


class Artifact(BaseModel):
    """A reference to data that a step has written: small, so that it can be part of the step's result.

    Attributes:
        run: Run that wrote it.
        step: Step, or undo, that wrote it.
        iteration: Path of loop counts of that step; '' outside of loops.
        name: Its name within the step.
        type: Media type, such as "text/markdown".
        size: In bytes.
        sha256: Of the whole data, as 64 hexadecimal digits; equal data has an equal hash, whichever run wrote it.
        location: Where it lies, from the store's root.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    run: UUID
    step: str
    iteration: str = ""
    name: str
    type: str
    size: int = Field(ge=0)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    location: str


class ArtifactMissing(StateError):
    """MP365: there is no such artifact, or its object is gone."""


class ArtifactChanged(StateError):
    """MP366: what lies there is not what was written: its size or SHA-256 differs."""


class ArtifactStoreUnavailable(ConnectError):
    """MP367: the store did not answer, or refused."""


_FIELDS = frozenset(Artifact.model_fields)


def references(value: Any) -> Iterator[Artifact]:
    """Find the references in a stored input or result.

    Args:
        value: JSON.

    Yields:
        Each reference once per place, in the order in which they stand there.
    """
    if isinstance(value, list):
        for item in value:
            yield from references(item)
    elif isinstance(value, dict):
        if value.keys() == _FIELDS:
            try:
                yield Artifact.model_validate(value)
            except ValidationError:
                pass  # somebody's own object with the same names
            else:
                return
        for item in value.values():
            yield from references(item)


def name_problem(name: object) -> str:
    """Say what keeps a text from being the name of an artifact, or ''."""
    if not isinstance(name, str):
        return f"is no text but {type(name).__name__}"
    if len(name) > LONGEST_NAME:
        return f"is longer than {LONGEST_NAME} characters"
    if not NAME.fullmatch(name):
        return "is not of letters, digits, '_', '-', '.', with '/' between parts that begin with none of '-' and '.'"
    return ""


def location_of(saga: str, run: UUID, step: str, *, iteration: str, fence: int, name: str) -> str:
    """Return where an artifact lies: a folder for each run, and in it one for each try.

    The fence rises with every claim of a step, so a try never writes where another one has.
    """
    place = f"{step}@{iteration}" if iteration else step
    return f"{saga}/{run}/{place}/{fence}/{name}"


def place_problem(url: str) -> str:
    """Say what keeps a URL from being the root of a store, or ''."""
    parts = urlsplit(url)
    if parts.query or parts.fragment or "@" in parts.netloc:
        return "has more than scheme, bucket and path; endpoint, region and keys have variables of their own"
    if parts.scheme == "file":
        plain = not parts.netloc and parts.path.startswith("/") and parts.path != "/"
        return "" if plain else "is no file:///absolute/folder"
    if parts.scheme == "s3":
        return "" if parts.netloc else "names no bucket: s3://bucket/prefix"
    return "is neither file:///absolute/folder nor s3://bucket/prefix"
