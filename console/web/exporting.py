"""Lists of pages as files, by the ending of their address."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel
from starlette.responses import Response

from .listing import as_csv, as_json

Kind = Literal["csv", "json"]
#: Most rows of a file.
MOST = 10_000
#: Lists within a row, which a table has no room for; they are in the JSON.
_INNER = frozenset({"answers", "line", "begins", "ends"})


def exported(kind: Kind, name: str, of: type[BaseModel], rows: Sequence[BaseModel]) -> Response:
    """Return rows as a file to be kept.

    Args:
        name: Of the file, without its ending.
        of: The rows' class, which has the columns.
    """
    if kind == "json":
        return as_json(name, rows)
    return as_csv(name, [column for column in of.model_fields if column not in _INNER], rows)
