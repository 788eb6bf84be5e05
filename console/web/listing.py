"""Lists as files, and what a list's address says."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from pydantic import BaseModel
from starlette.datastructures import QueryParams
from starlette.responses import Response

from .rendering import instant


def query_of(params: QueryParams, *, without: Iterable[str] = ("cursor",), **more: object) -> str:
    """Return what stands behind the question mark, without what is empty, in the order of the names.

    Args:
        without: Names that are left out.
        more: What is put in instead.
    """
    kept = [(k, v) for k, v in params.multi_items() if v and k not in without and k not in more]
    kept += [(name, str(value)) for name, value in more.items() if value]
    return urlencode(sorted(kept))


def as_json(name: str, rows: Sequence[BaseModel]) -> Response:
    """Return rows as a file of JSON: one array of objects."""
    body = json.dumps([row.model_dump(mode="json") for row in rows], ensure_ascii=False, indent=1)
    return Response(body, media_type="application/json", headers=_file(f"{name}.json"))


def as_csv(name: str, columns: Sequence[str], rows: Iterable[BaseModel]) -> Response:
    """Return rows as a file of CSV (RFC 4180) with a head.

    Args:
        columns: Attributes of the rows, in order.
    """
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_cell(getattr(row, column)) for column in columns])
    return Response(out.getvalue(), media_type="text/csv; charset=utf-8", headers=_file(f"{name}.csv"))


def _file(name: str) -> Mapping[str, str]:
    return {"content-disposition": f'attachment; filename="milepost-{name}"'}


def _cell(value: Any) -> str:
    """Write a value; one that a spreadsheet would take for a formula has an apostrophe before it."""
    if isinstance(value, datetime):
        return instant(value)
    if isinstance(value, timedelta):
        return str(value.total_seconds())
    text = "" if value is None else ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text
