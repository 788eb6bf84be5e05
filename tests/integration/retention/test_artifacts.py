"""Artifacts go by their own rule, the object with its row; of a live run none goes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from milepost.console.retention import lines_of
from milepost.console.store import reading
from milepost.consumers.clearing import Clearing
from milepost.streams.database import Database

from tests.support.engine import settings_for
from tests.support.outbox import connected
from tests.support.retained import days, run_of, stop

INSERT = """
INSERT INTO milepost.artifact (run_id, step, name, type, location, sha256, size, created_at)
VALUES ($1, 'write', $2, 'text/plain', $3, sha256('x'), 1, clock_timestamp() - $4::interval)
"""


@pytest.fixture
async def connection(database_url: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    async with connected(database_url) as (found,):
        yield found


def clearing(url: str, folder: Path | None, keep: int = 90) -> Clearing:
    """Return the part, on a store in a folder."""
    changed = {"artifacts": None if folder is None else folder.as_uri(), "keep_artifacts": days(keep)}
    return Clearing(Database(settings_for(url).model_copy(update=changed)))


async def made(connection: asyncpg.Connection[Any], folder: Path, run: UUID, name: str, age: int) -> Path:
    """Make an artifact that is so many days old."""
    location = f"order/{run}/write/1/{name}"
    path = folder / location
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x")
    await connection.execute(INSERT, run, name, location, days(age))
    return path


async def rows(connection: asyncpg.Connection[Any]) -> set[str]:
    return {row["name"] for row in await connection.fetch("SELECT name FROM milepost.artifact")}


async def test_what_is_old_goes_object_and_row_unless_its_run_is_live(
    database_url: str, connection: asyncpg.Connection[Any], tmp_path: Path
) -> None:
    ended = await run_of(connection, began=200, ended=100)
    live = await run_of(connection, began=200, ended=None)
    old = await made(connection, tmp_path, ended, "old", 91)
    kept = [
        await made(connection, tmp_path, ended, "young", 89),
        await made(connection, tmp_path, live, "in-use", 150),
    ]
    part = clearing(database_url, tmp_path)
    settings = settings_for(database_url).model_copy(update={"artifacts": tmp_path.as_uri()})
    async with reading(database_url) as store:
        (told,) = [line for line in await lines_of(store, settings) if line.kind == "artifacts"]
    assert told.due == 1, "milepost retention counts what goes"
    await part.tidy(stop())
    assert await rows(connection) == {"young", "in-use"}
    assert not old.exists()
    assert all(path.exists() for path in kept)
    assert part.removed == {"artifacts": 1}


async def test_an_object_that_went_before_its_row_was_committed_away(
    database_url: str, connection: asyncpg.Connection[Any], tmp_path: Path
) -> None:
    run = await run_of(connection, began=200, ended=100)
    (await made(connection, tmp_path, run, "old", 91)).unlink()
    await clearing(database_url, tmp_path).tidy(stop())
    assert await rows(connection) == set()


async def test_where_the_store_does_not_answer_the_row_stays(
    database_url: str, connection: asyncpg.Connection[Any], tmp_path: Path
) -> None:
    run = await run_of(connection, began=200, ended=100)
    path = await made(connection, tmp_path, run, "old", 91)
    path.unlink()
    path.mkdir()  # what cannot be removed as a file
    await clearing(database_url, tmp_path).tidy(stop())
    assert await rows(connection) == {"old"}


async def test_a_process_without_the_store_leaves_it_to_others(
    database_url: str, connection: asyncpg.Connection[Any], tmp_path: Path
) -> None:
    run = await run_of(connection, began=200, ended=100)
    await made(connection, tmp_path, run, "old", 91)
    await clearing(database_url, None).tidy(stop())
    assert await rows(connection) == {"old"}
    await clearing(database_url, tmp_path).tidy(stop())
    assert await rows(connection) == set()
