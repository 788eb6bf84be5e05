"""Named SQL from .sql files, loaded when the module that uses it is imported.

A file holds queries under lines of the form `-- name: load_run`. A module declares which it uses::

    class Sql(Queries, file="queries.sql"):
        load_run: str
        store_run: str

Unknown, missing, unused and duplicate names fail at import.
"""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Any

_NAME = re.compile(r"^--\s*name:\s*(\w+)\s*$", re.MULTILINE)


def parse_queries(text: str, where: str) -> dict[str, str]:
    """Split a .sql file into its named queries.

    Args:
        text: The file's text.
        where: Its name, for the error.

    Returns:
        Query text by name, without comment lines before the first name and without a trailing semicolon.

    Raises:
        ImportError: A name occurs twice, a query is empty, or SQL stands before the first name.
    """
    pieces = _NAME.split(text)
    if any(line.strip() and not line.lstrip().startswith("--") for line in pieces[0].splitlines()):
        raise ImportError(f"{where}: SQL before the first '-- name:' line")
    queries: dict[str, str] = {}
    for name, body in zip(pieces[1::2], pieces[2::2], strict=True):
        sql = body.strip().removesuffix(";").strip()
        if name in queries:
            raise ImportError(f"{where}: query {name} is there twice")
        if not sql:
            raise ImportError(f"{where}: query {name} is empty")
        queries[name] = sql
    return queries


class Queries:
    """Base of a module's query table; see the module's docstring."""

    def __init_subclass__(cls, *, file: str = "queries.sql", **rest: Any) -> None:
        super().__init_subclass__(**rest)
        room = cls.__module__.rpartition(".")[0]
        where = f"{room}/sql/{file}"
        found = parse_queries((files(room) / "sql" / file).read_text(), where)
        declared = set(cls.__annotations__)
        if missing := sorted(declared - found.keys()):
            raise ImportError(f"{where}: {cls.__qualname__} names unknown queries: {', '.join(missing)}")
        if unused := sorted(found.keys() - declared):
            raise ImportError(f"{where}: {cls.__qualname__} does not name: {', '.join(unused)}")
        for name, sql in found.items():
            setattr(cls, name, sql)
