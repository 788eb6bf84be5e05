"""Going on after a stop, through `milepost serve` and the command line: blocked, reviewed, repaired."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from milepost import Milepost

from tests.support.apps.resume_service import CHECKED, Job, job
from tests.support.engine import settings_for
from tests.support.person import Person, Said, person
from tests.support.process import Served, served
from tests.support.waiting import until


@pytest.fixture
def ann(
    database_url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Person:
    """Somebody at the command line who has the database only."""
    return person(database_url, capsys, monkeypatch, tmp_path)


def env_of(url: str, kafka: str, prefix: str, folder: Path, **more: str) -> dict[str, str]:
    """The environment of the service's processes."""
    return {
        "MILEPOST_APP": "tests.support.apps.resume_service:service",
        "MILEPOST_DATABASE_URL": url,
        "MILEPOST_KAFKA": kafka,
        "MILEPOST_LEASE": "2s",
        "MILEPOST_NUDGE": "1s",
        "MILEPOST_ARTIFACTS": (folder / "store").as_uri(),
        "RESUME_FOLDER": str(folder),
        "RESUME_SERVICE": prefix,
        **more,
    }


async def held(pool: asyncpg.Pool[Any], prefix: str, url: str, name: str) -> Any:
    """Start a run, and wait until it stands in front of a person."""
    service = Milepost(prefix, sagas=[job], settings=settings_for(url))
    async with pool.acquire() as connection, connection.transaction():
        run = await service.start(connection, job, Job(name=name))
    query = "SELECT state = 'MANUAL_REQUIRED' FROM milepost.run WHERE id = $1"
    await until(lambda: pool.fetchval(query, run.id), within=60, what=f"{name} to be held")
    return run.id


async def ask(ann: Person, name: str, *more: str) -> Said:
    """Ask for a retry."""
    return await ann("runs", "retry", f"job/{name}", "send", "--reason", "again", "--wait", "30", *more)


async def test_a_run_goes_on_only_from_what_it_rests_on(
    database_url: str, kafka: str, topic_prefix: str, tmp_path: Path, ann: Person
) -> None:
    env = env_of(database_url, kafka, topic_prefix, tmp_path)
    (tmp_path / "refuse").touch()
    async with asyncpg.create_pool(database_url, min_size=1, max_size=3) as pool, served(env):
        runs = {name: await held(pool, topic_prefix, database_url, name) for name in ("gone", "look", "fine")}
        (tmp_path / "refuse").unlink()

        place = await pool.fetchval("SELECT location FROM milepost.artifact WHERE run_id = $1", runs["gone"])
        file = tmp_path / "store" / place
        kept = file.read_bytes()
        for data, code in ((b"other", "ARTIFACT_CHANGED"), (None, "ARTIFACT_MISSING")):
            file.unlink()
            if data is not None:
                file.write_bytes(data)
            said = await ask(ann, "gone")
            assert said.status == 3 and f"RESUME_BLOCKED: {code}" in said.error, said
        assert await code_of(pool, runs["gone"]) == ("MANUAL_REQUIRED", "RESUME_BLOCKED")
        await manifest_of(ann, place)
        overridden = await ask(ann, "gone", "--reviewed")
        assert overridden.status == 3 and "MP638" in overridden.error
        file.write_bytes(kept)
        assert (await ask(ann, "gone")).status == 0, "repaired, it goes on"

        (tmp_path / "doubt-look").write_text("the repository has moved")
        said = await ask(ann, "look")
        assert said.status == 3 and "REVIEW_REQUIRED: CHECK_FOUND: the repository has moved" in said.error
        (tmp_path / "doubt-look").write_text("and once more")
        said = await ask(ann, "look", "--reviewed")
        assert said.status == 3 and "and once more" in said.error, "what nobody has read holds it back again"
        said = await ask(ann, "look", "--reviewed")
        assert said.status == 0, said.error
        (tmp_path / "doubt-fine").write_text("REFUSE")
        said = await ask(ann, "fine")
        assert said.status == 3 and "RESUME_BLOCKED: COMMIT_GONE" in said.error
        skipped = await ann("runs", "skip", "job/fine", "send", "--reason", "no matter")
        assert skipped.status == 3 and "RESUME_BLOCKED" in skipped.error, "nor does a skip go round it"
        (tmp_path / "doubt-fine").unlink()
        assert (await ask(ann, "fine")).status == 0
        query = "SELECT count(*) = 3 FROM milepost.run WHERE state = 'SUCCEEDED'"
        await until(lambda: pool.fetchval(query), within=60, what="the end")

        told = "SELECT event FROM milepost.history WHERE run_id = $1 AND event LIKE 'resume.%' ORDER BY n"
        events = [row["event"] for row in await pool.fetch(told, runs["look"])]
        assert events == ["resume.review_required", "resume.review_required", "resume.reviewed"]
        acts = "SELECT after->>'outcome' AS outcome, actor FROM milepost.audit WHERE run_id = $1 AND act = $2"
        audit = await pool.fetch(f"{acts} ORDER BY id", runs["gone"], "run.resume_check")
        assert [(row["outcome"], row["actor"]) for row in audit] == [
            *[("RESUME_BLOCKED", "ann")] * 2,
            ("PASSED", "ann"),
        ]


async def test_changed_code_is_found_by_the_fingerprint(
    database_url: str, kafka: str, topic_prefix: str, tmp_path: Path, ann: Person
) -> None:
    env = env_of(database_url, kafka, topic_prefix, tmp_path)
    (tmp_path / "refuse").touch()
    async with asyncpg.create_pool(database_url, min_size=1, max_size=3) as pool:
        async with served(env):
            run = await held(pool, topic_prefix, database_url, "one")
        (tmp_path / "refuse").unlink()
        async with served({**env, "RESUME_PROMPT": "2"}):
            said = await ask(ann, "one")
            assert said.status == 3 and "RESUME_BLOCKED: FINGERPRINT_CHANGED: prompt" in said.error, said
            assert await code_of(pool, run) == ("MANUAL_REQUIRED", "RESUME_BLOCKED")
            cancelled = await ann(
                "runs", "cancel", "job/one", "--no-undo", "--reason", "anew", "--wait", "30"
            )
            assert cancelled.status == 0, "a run that is held back can always be cancelled"


async def test_a_worker_that_dies_while_it_looks_is_followed_by_another(
    database_url: str, kafka: str, topic_prefix: str, tmp_path: Path, ann: Person
) -> None:
    env = env_of(database_url, kafka, topic_prefix, tmp_path)
    (tmp_path / "refuse").touch()
    async with asyncpg.create_pool(database_url, min_size=1, max_size=3) as pool, served(env) as processes:
        run = await held(pool, topic_prefix, database_url, "one")
        (tmp_path / "refuse").unlink()
        (tmp_path / "doubt-one").write_text("HANG")
        asked = await ann("runs", "retry", "job/one", "send", "--reason", "again", "--no-wait")
        assert asked.status == 0
        await until((tmp_path / CHECKED).exists, within=30, what="the look to begin")
        (tmp_path / "doubt-one").unlink()
        processes[0].send(signal.SIGKILL)
        await processes[0].wait()
        assert await pool.fetchval("SELECT state FROM milepost.resume_check") == "OPEN"
        again = Served(env)
        processes.append(again)
        await again.start()
        query = "SELECT state = 'SUCCEEDED' FROM milepost.run WHERE id = $1"
        await until(lambda: pool.fetchval(query, run), within=60, what="the end")
        row = await pool.fetchrow("SELECT state, fence FROM milepost.resume_check")
        assert row is not None and (row["state"], row["fence"]) == ("PASSED", 2)


async def manifest_of(ann: Person, place: str) -> None:
    """Look at the manifest of a run that is held back, as a program and as a person."""
    (shown,) = (await ann("runs", "show", "job/gone", "--manifest")).lines
    found = shown["manifest"]
    (done,) = found["done"]
    assert (done["step"], done["state"], done["artifacts"][0]["location"]) == ("write", "SUCCEEDED", place)
    assert [(step["step"], step["state"]) for step in found["next"]] == [("send", "MANUAL_REQUIRED")]
    on = found["rests_on"]
    assert on["parts"] == {"task": "gone", "prompt": "1"} and len(on["fingerprint"]) == 64
    assert [made["location"] for made in on["artifacts"]] == [place] and len(on["input_sha256"]) == 64
    assert [block["code"] for block in found["blocks"]] == ["TOLD_TO", "RESUME_BLOCKED, ARTIFACT_MISSING"]
    text = "\n".join(
        line["text"] for line in (await ann("runs", "show", "job/gone", "--manifest", json_lines=False)).lines
    )
    for words in ("done", "write  SUCCEEDED", "made text.md (4 B", "rests on", 'prompt "1"', "in the way"):
        assert words in text, text


async def code_of(pool: asyncpg.Pool[Any], run: Any) -> tuple[str, str | None]:
    """Return state and code of a run."""
    row = await pool.fetchrow("SELECT state, code FROM milepost.run WHERE id = $1", run)
    assert row is not None
    return row["state"], row["code"]
