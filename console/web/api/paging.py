"""Pages of lists: a cursor is what the answer before gave as `next`, and says nothing else to anybody."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Annotated, Generic, TypeVar
from uuid import UUID

from fastapi import Query
from pydantic import BaseModel

from ..problems import Problem

T = TypeVar("T")
C = TypeVar("C")

#: Most items of a page.
MOST = 200

Limit = Annotated[int, Query(ge=1, le=MOST, description="At most so many items.")]
Cursor = Annotated[
    str | None,
    Query(max_length=200, description="`next` of the page before; leave it out for the first page."),
]


class Page(BaseModel, Generic[T]):
    """Some items of a list.

    Attributes:
        next: Give it as `cursor` for the items after these; null on the last page.
    """

    items: Sequence[T]
    next: str | None = None


def cursor_of(place: UUID | int | datetime | None) -> str | None:
    """Return a place in a list as a cursor; None for none."""
    if place is None:
        return None
    return encode(place.isoformat() if isinstance(place, datetime) else str(place))


def encode(text: str) -> str:
    """Write what `read_cursor` reads."""
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read_cursor(text: str | None, read: Callable[[str], C]) -> C | None:
    """Return the place that a cursor stands for; None for the first page.

    Args:
        read: Reads the place; ValueError for what is none.

    Raises:
        Problem: 422, MP712 when it is none.
    """
    if text is None:
        return None
    try:
        return read(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode())
    except (binascii.Error, ValueError):
        raise Problem(422, "MP712", "The cursor is none that this list gave. Begin without one.") from None


def number(text: str) -> int:
    """Read a number that the database can hold.

    Raises:
        ValueError: It is none.
    """
    found = int(text)
    if not 0 <= found < 2**63:
        raise ValueError("out of range")
    return found
