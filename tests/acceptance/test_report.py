"""The report example as a user runs it: a bad model, a bad page server, and a kill between model and page."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

from tests.support import servers
from tests.support.programs import finished, left_behind, shell


def rows(path: Path, sql: str) -> list[tuple[object, ...]]:
    book = sqlite3.connect(path)
    try:
        return book.execute(sql).fetchall()
    finally:
        book.close()


def test_a_kill_between_model_and_page_asks_no_model_again_and_makes_no_second_page(
    tmp_path: Path, postgres_server: servers.DatabaseServer, kafka_server: servers.MessageServer
) -> None:
    env = shell(postgres_server, kafka_server)
    done = finished("milepost.examples.report", "demo", where=tmp_path, env=env, within=200)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == "report ok: model asked 3 times, 1 kill, 1 pages"
    assert left_behind(tmp_path) == []
    folder = tmp_path / "build" / "report"
    entries = "SELECT name FROM entry WHERE kind = '{}' ORDER BY n"
    assert rows(folder / "model.sqlite", entries.format("chat")) == [("incomplete",), ("invents",), ("good",)]
    assert rows(folder / "pages.sqlite", entries.format("call")) == [("503",), ("lost",), ("hold",)]
    ((page,),) = rows(folder / "pages.sqlite", entries.format("page"))
    kept = sorted(path.name for path in (folder / "reports").glob("*.md"))
    assert kept == [f"{page}.md"]
    answers = sorted(
        (folder / "reports" / "artifacts").rglob("report.md"), key=lambda path: path.stat().st_mtime
    )
    assert len(answers) == 3, "each answer of the model is kept"
    assert answers[-1].read_bytes() == (folder / "reports" / f"{page}.md").read_bytes()
    assert re.search(r"^PUBLISHED https://pages\.example/page-\d+, written in 3 tries", done.stdout, re.M)
    assert "`report resume` goes on after the last finished step" in done.stdout
