"""`report run` and `report resume` on real servers, where a person has to mend something in between."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from milepost.examples.report import demo
from milepost.examples.report.book import Book
from milepost.examples.stage.processes import Fleet, ports

from tests.support.programs import finished


@dataclass
class Stage:
    """The stand-ins, and the environment of a shell in which `report` is used."""

    folder: Path
    env: dict[str, str]

    def report(self, command: str, **changed: str) -> tuple[int, str]:
        """Run one command about the garden; returns its exit status and what it said."""
        which = ("--repo", str(self.folder / "garden"), "--date", demo.DAY.isoformat())
        env = {**self.env, **changed}
        done = finished("milepost.examples.report", command, *which, where=self.folder, env=env, within=120)
        return done.returncode, done.stdout + done.stderr

    def book(self, name: str, kind: str) -> list[str]:
        """Return the names of the entries of a book."""
        book = Book(self.folder / f"{name}.sqlite")
        try:
            return [entry.name for entry in book.entries(kind)]
        finally:
            book.close()


@pytest.fixture
def stage(database_url: str, kafka: str, topic_prefix: str, tmp_path: Path) -> Iterator[Stage]:
    port = ports(("model", "pages"))
    fleet = Fleet(tmp_path, {"PAGES_TOKEN": "renewed", "MODEL_SCRIPT": ",".join(["invents"] * 3)})
    for name, app, path in (("model", "model_server", "/api/version"), ("pages", "page_server", "/calls")):
        ledger = {"COMPANY_LEDGER": str(tmp_path / f"{name}.sqlite")}
        fleet.add_web(name, f"milepost.examples.report.{app}:api", port[name], path=path, env=ledger)
    demo.make_repository(tmp_path / "garden")
    env = {
        **os.environ,
        "MILEPOST_DATABASE_URL": database_url,
        "MILEPOST_KAFKA": kafka,
        "MILEPOST_LEASE": "3s",
        "MILEPOST_NUDGE": "2s",
        "REPORT_PREFIX": f"{topic_prefix}-",
        "REPORT_FOLDER": str(tmp_path / "reports"),
        "REPORT_MODEL_URL": f"http://127.0.0.1:{port['model']}",
        "REPORT_PAGES_URL": f"http://127.0.0.1:{port['pages']}",
        "REPORT_PAGES_TOKEN": "expired",
    }
    try:
        fleet.start()
        asyncio.run(fleet.come_up())
        yield Stage(tmp_path, env)
    finally:
        fleet.stop()


def test_resume_goes_on_where_a_person_was_asked(stage: Stage) -> None:
    code, said = stage.report("run")
    assert code == 1, said
    assert "NEEDS A PERSON at writing: LOOP_EXHAUSTED" in said
    assert stage.book("model", "chat") == ["invents"] * 3
    code, said = stage.report("resume")
    assert code == 1, said
    assert "writing#3: retry accepted" in said
    assert "NEEDS A PERSON at publish: HTTP_401" in said
    assert stage.book("pages", "page") == []
    code, said = stage.report("resume", REPORT_PAGES_TOKEN="renewed")
    assert code == 0, said
    assert "publish: retry accepted" in said
    assert "PUBLISHED https://pages.example/" in said
    assert len(stage.book("pages", "page")) == 1
    assert stage.book("model", "chat") == [*["invents"] * 3, "good"], "a page that fails asks no model again"
