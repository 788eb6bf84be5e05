"""Artifacts through `milepost serve` and the command line, in a folder and in a bucket, and a process that is killed
between the object and the checkpoint."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from milepost import Milepost
from milepost.consumers.artifact_store import ArtifactStore, require_store

from tests.support.apps.report_service import BIG, Day, report, text_of
from tests.support.engine import settings_for
from tests.support.person import Person, person
from tests.support.process import Supervised, supervising
from tests.support.s3 import S3Server
from tests.support.waiting import until


@dataclass
class Reports:
    """The service on a database and a store."""

    url: str
    kafka: str
    prefix: str
    folder: Path
    kept: dict[str, str]
    pool: asyncpg.Pool[Any]

    @property
    def env(self) -> dict[str, str]:
        """The environment of its processes."""
        return {
            "MILEPOST_APP": "tests.support.apps.report_service:service",
            "MILEPOST_DATABASE_URL": self.url,
            "MILEPOST_KAFKA": self.kafka,
            "MILEPOST_LEASE": "2s",
            "MILEPOST_NUDGE": "1s",
            "REPORT_FOLDER": str(self.folder),
            "REPORT_SERVICE": self.prefix,
            **{f"MILEPOST_{name.upper()}": value for name, value in self.kept.items()},
        }

    @property
    def store(self) -> ArtifactStore:
        """Its store."""
        return require_store(settings_for(self.url, **self.kept))

    async def start(self, name: str) -> UUID:
        """Start a run."""
        service = Milepost(self.prefix, sagas=[report], settings=settings_for(self.url))
        async with self.pool.acquire() as connection, connection.transaction():
            return (await service.start(connection, report, Day(name=name))).id

    async def is_(self, run: UUID, state: str) -> None:
        """Wait until a run is in a state."""
        query = "SELECT state = $2 FROM milepost.run WHERE id = $1"
        await until(lambda: self.pool.fetchval(query, run, state), within=90, what=f"run {state}")

    async def recorded(self, run: UUID) -> list[asyncpg.Record]:
        """Return what is recorded for a run."""
        connection = await asyncpg.connect(self.url)
        try:
            query = "SELECT * FROM milepost.artifact WHERE run_id = $1 ORDER BY name"
            found: list[asyncpg.Record] = await connection.fetch(query, run)
            return found
        finally:
            await connection.close()

    def objects(self) -> set[str]:
        """Return the names of all objects."""
        return {o.location for page in self.store.objects() for o in page}


@asynccontextmanager
async def reports(
    url: str, kafka: str, prefix: str, folder: Path, kept: dict[str, str]
) -> AsyncIterator[Reports]:
    """Run the service as a platform would."""
    async with asyncpg.create_pool(url, min_size=1, max_size=3) as pool:
        found = Reports(url, kafka, prefix, folder, kept, pool)
        async with supervising([Supervised(found.env)]):
            yield found


@pytest.fixture(params=["folder", "bucket"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """Settings of a new store of each kind."""
    if request.param == "folder":
        return {"artifacts": (tmp_path / "store").as_uri()}
    s3: S3Server = request.getfixturevalue("s3")
    return s3.settings(secrets.token_hex(4))


@pytest.fixture
def ann(
    database_url: str,
    kept: dict[str, str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Person:
    """Somebody at the command line who has database and store, and not the application."""
    for name, value in kept.items():
        monkeypatch.setenv(f"MILEPOST_{name.upper()}", value)
    return person(database_url, capsys, monkeypatch, tmp_path)


async def test_a_kill_between_object_and_checkpoint_costs_an_orphan_and_nothing_else(
    database_url: str, kafka: str, topic_prefix: str, tmp_path: Path, kept: dict[str, str], ann: Person
) -> None:
    (tmp_path / "die-one").touch()
    async with reports(database_url, kafka, topic_prefix, tmp_path, kept) as service:
        run = await service.start("one")
        await service.is_(run, "SUCCEEDED")
        other = await service.start("two")
        await service.is_(other, "SUCCEEDED")
    assert not (tmp_path / "die-one").exists(), "the process was killed"
    recorded = await service.recorded(run)
    assert [(row["step"], row["name"], row["size"]) for row in recorded] == [
        ("write", "pages/1.txt", BIG),
        ("write", "report.md", len(text_of("one"))),
    ]
    assert {row["location"].split("/")[3] for row in recorded}.isdisjoint({"1"}), "of a later try"
    first = {f"report/{run}/write/1/{name}" for name in ("report.md", "pages/1.txt")}
    assert first < service.objects() and (tmp_path / "published-one").stat().st_size == BIG

    listed = await ann("runs", "artifacts", "report/one", "--verify")
    assert listed.status == 0, listed.error
    assert [(line["name"], line["found"]) for line in listed.lines] == [
        ("report.md", "ok"),
        ("pages/1.txt", "ok"),
    ]
    assert listed.lines[0]["sha256"] == hashlib.sha256(text_of("one")).hexdigest()

    against = await ann("runs", "artifacts", "report/one", "--against", "report/two")
    assert (against.status, [line["against"] for line in against.lines]) == (1, ["different", "different"])
    same = await ann("runs", "artifacts", "report/one", "--against", "report/one")
    assert (same.status, {line["against"] for line in same.lines}) == (0, {"same"})

    orphans = await ann("artifacts", "orphans", "--older", "0s")
    assert (orphans.status, {line["location"] for line in orphans.lines}) == (1, first)
    young = await ann("artifacts", "orphans")
    assert (young.status, young.lines) == (0, [])
    refused = await ann("artifacts", "orphans", "--older", "0s", "--delete")
    assert refused.status == 2 and "--reason" in refused.error
    removed = await ann("artifacts", "orphans", "--older", "0s", "--delete", "--reason", "tidy", "--yes")
    assert removed.status == 0, removed.error
    assert not first & service.objects() and len(service.objects()) == 4
    assert (await ann("artifacts", "orphans", "--older", "0s")).status == 0


async def test_what_was_changed_or_removed_is_found_at_the_command_line(
    database_url: str, kafka: str, topic_prefix: str, tmp_path: Path, kept: dict[str, str], ann: Person
) -> None:
    async with reports(database_url, kafka, topic_prefix, tmp_path, kept) as service:
        run = await service.start("one")
        await service.is_(run, "SUCCEEDED")
    place = f"report/{run}/write/1"
    await service.store.put(f"{place}/report.md", _pieces(b"something else"))
    await service.store.delete(f"{place}/pages/1.txt")
    said = await ann("runs", "artifacts", "report/one", "--verify")
    assert said.status == 1
    assert [line["found"] for line in said.lines] == ["ARTIFACT_CHANGED", "ARTIFACT_MISSING"]
    people = await ann("runs", "artifacts", "report/one", "--verify", json_lines=False)
    assert any("ARTIFACT_CHANGED" in line["text"] and "report.md" in line["text"] for line in people.lines)
    settings = (await ann("settings")).lines
    shown = {name: line[name] for line in settings for name in line if name.startswith("artifacts")}
    assert shown["artifacts"] == kept["artifacts"]
    secret = kept.get("artifacts_secret_key")
    assert shown["artifacts_secret_key"] == ("**********" if secret else None)


async def _pieces(data: bytes) -> AsyncIterator[bytes]:
    yield data
