"""docs/history.md has every event that the engine or a statement can write, with its fields, and no other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import get_args

from milepost.sagas.facts import ActName

from tests.support.house import ROOT, sources

ROW = re.compile(r"^\| `([a-z]+\.[a-z_]+)` \| [^|]+ \| ([^|]*) ?\|$", re.M)
PAGE = {
    event: set(re.findall(r"\w+", fields))
    for event, fields in ROW.findall((ROOT / "docs/history.md").read_text())
}
#: In SQL a statement that writes to the history names its events in quotes, right behind the run and the number.
IN_SQL = re.compile(r"INSERT INTO milepost\.history [^;]*?'([a-z]+\.[a-z_]+)'", re.S)


def notes() -> Iterator[ast.Call]:
    """Every call of `Draft.note` in the engine."""
    for path in sources():
        if path.parts[0] == "sagas" and path.suffix == ".py":
            for node in ast.walk(ast.parse((ROOT / path).read_text())):
                if (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Attribute)
                    and node.func.attr == "note"
                ):
                    yield node


def events(said: ast.expr) -> set[str]:
    """The names that a call can write: a literal, one of two, or an act's."""
    if isinstance(said, ast.Constant):
        return {str(said.value)}
    if isinstance(said, ast.IfExp):
        return events(said.body) | events(said.orelse)
    assert isinstance(said, ast.JoinedStr) and ast.unparse(said) == "f'act.{fact.what}'", ast.unparse(said)
    return {f"act.{act}" for act in get_args(ActName)}


def in_sql() -> set[str]:
    statements = [
        (ROOT / path).read_text()
        for path in sources()
        if path.suffix == ".sql" and "migrations" not in path.parts
    ]
    return {event for text in statements for event in IN_SQL.findall(text)}


def test_every_event_is_on_the_page_and_no_other() -> None:
    written = {event for call in notes() for event in events(call.args[0])} | in_sql()
    assert set(PAGE) == written
    assert {"run.parked", "run.migrated"} <= in_sql(), "the statements are found"


def test_every_field_is_named() -> None:
    missing = [
        (event, keyword.arg)
        for call in notes()
        for event in events(call.args[0])
        for keyword in call.keywords
        if keyword.arg is not None and keyword.arg not in PAGE[event]
    ]
    assert missing == []


def test_no_field_carries_what_a_customer_gave() -> None:
    """Input, results and bodies are never handed to the history as such; test_nothing_personal looks into the rows."""
    forbidden = {"input", "result", "payload", "body", "signal", "value"}
    assert [fields & forbidden for fields in PAGE.values() if fields & forbidden] == []
