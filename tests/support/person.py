"""A person at the command line, who has the database and not the application."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import asyncpg
import pytest
from milepost.console import main

from tests.support.apps.ledger_stage import Stage


class Said(NamedTuple):
    """What a command line did: its exit status, its JSON lines, and what it wrote to stderr."""

    status: int
    lines: list[dict[str, Any]]
    error: str


class Person:
    """Ann.

    Args:
        capsys: Where the command line writes.
    """

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    async def __call__(self, *words: str, json_lines: bool = True, by: str = "ann") -> Said:
        """Run a command line; without `json_lines` each line of stdout is under "text"."""
        self._capsys.readouterr()
        more = ["--json"] if json_lines else []
        status = await asyncio.to_thread(main.run, [*more, "--as", by, *words])
        captured = self._capsys.readouterr()
        lines = [json.loads(line) if json_lines else {"text": line} for line in captured.out.splitlines()]
        return Said(status, lines, captured.err)

    async def accepted(self, act: str, *words: str) -> dict[str, Any]:
        """Act on a run, and see that it is accepted."""
        said = await self("runs", act, *words, "--reason", "seen on the other side")
        assert said.status == 0, said.error
        (line,) = said.lines
        assert (line["act"], line["run"], line["outcome"]) == (act, words[0], "accepted")
        return line

    async def refused(self, stage: Stage, run: UUID, act: str, *options: str, words: str) -> None:
        """One refused act: exit status 3 with the reason, nothing changed, and the request says so for good."""
        before, history = await version(stage, run), await stage.history(run)
        said = await self("runs", act, *options, "--reason", "let me")
        assert said.status == 3 and words in said.error and '"MP615"' in said.error, said
        assert said.lines[0]["outcome"] == "refused"
        kept = await stage.pool.fetchrow(
            "SELECT outcome, kind, actor, evidence FROM milepost.audit WHERE id = $1",
            UUID(said.lines[0]["audit"]),
        )
        assert kept is not None and tuple(kept)[:3] == ("REFUSED", "PERSON", "ann")
        assert words in json.loads(kept["evidence"])["refused"]
        assert (await version(stage, run), await stage.history(run)) == (before, history)
        row = await request_of(stage, run)
        assert (row["state"], row["by"], row["reason"]) == ("REFUSED", "ann", "let me")


def person(
    url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, folder: Path
) -> Person:
    """Put a person at the command line of a database, in an empty folder."""
    monkeypatch.setenv("MILEPOST_DATABASE_URL", url)
    monkeypatch.delenv("MILEPOST_APP", raising=False)
    monkeypatch.chdir(folder)
    return Person(capsys)


async def request_of(stage: Stage, run: UUID) -> asyncpg.Record:
    """Return the last request for a run."""
    row: asyncpg.Record | None = await stage.pool.fetchrow(
        "SELECT * FROM milepost.request WHERE run_id = $1 ORDER BY id DESC LIMIT 1", run
    )
    assert row is not None
    return row


async def version(stage: Stage, run: UUID) -> int:
    """Return a run's version, which every change raises."""
    return int(await stage.pool.fetchval("SELECT version FROM milepost.run WHERE id = $1", run))
