"""Scenario 55 through the command line: replays beside a live group, killed in the middle and resumed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from milepost.streams.topics import ensure_topics

from tests.support.inbox import EFFECTS, IDS, Effects, Sent, headers, paid, send
from tests.support.process import ROOT, served
from tests.support.waiting import until

APP = "tests.support.apps.replay_service:service"
MANY = 9_000


@dataclass
class Stage:
    """Servers, the service's topic, and how to call the command line."""

    env: dict[str, str]
    kafka: str
    topic: str
    consumer: str
    effects: Effects

    async def begin(self, *words: str, **env: str) -> asyncio.subprocess.Process:
        """Start `milepost replay`."""
        return await asyncio.create_subprocess_exec(
            *(
                sys.executable,
                "-m",
                "milepost.console.main",
                "--json",
                "--yes",
                "replay",
                self.consumer,
                *words,
            ),
            env={**os.environ, "PYTHONPATH": str(ROOT), **self.env, **env},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=ROOT,
        )

    async def replay(self, *words: str) -> dict[str, Any]:
        """Run `milepost replay` to its end; returns its last line."""
        process = await self.begin(*words)
        out, err = await asyncio.wait_for(process.communicate(), 90)
        assert process.returncode in (0, 1), err.decode()
        found: dict[str, Any] = json.loads(out.splitlines()[-1])
        return found

    async def killed(self, *words: str, end: int, **env: str) -> str:
        """Run it and SIGKILL it when it has stored some progress but not all; returns the replay's id."""
        process = await self.begin(*words, **env)
        async with self.effects.pool.acquire() as connection:

            async def halfway() -> str | None:
                transaction = connection.transaction()
                await transaction.start()
                # While its row is locked it cannot get on.
                row = await connection.fetchrow(
                    "SELECT id::text, (nexts ->> '0')::bigint AS next, (begins ->> '0')::bigint AS begin"
                    " FROM milepost.replay WHERE apply = $1 AND finished_at IS NULL FOR UPDATE",
                    "--apply" in words,
                )
                if row is None or not row["begin"] < row["next"] < end:
                    assert process.returncode is None, "it ended before it could be killed"
                    await transaction.rollback()
                    return None
                process.send_signal(signal.SIGKILL)
                await process.wait()
                await transaction.rollback()
                return str(row["id"])

            found: str = await until(halfway, within=60, every=0.005, what="a replay that is halfway")
        assert process.returncode == -signal.SIGKILL
        await process.communicate()
        return found

    async def totals(self) -> tuple[int, int, int]:
        """Return the numbers of effects, of mails and of runs."""
        row = await self.effects.rows(
            "SELECT (SELECT count(*) FROM effect), (SELECT count(*) FROM milepost.outbox WHERE type = 'test.mailed'),"
            " (SELECT count(*) FROM milepost.run)"
        )
        effects, mails, runs = row[0]
        return effects, mails, runs


@pytest.fixture
async def stage(database_url: str, kafka: str, topic_prefix: str) -> AsyncIterator[Stage]:
    topic = f"{topic_prefix}.orders"
    await ensure_topics(kafka, [topic], partitions=1)
    env = {
        "MILEPOST_DATABASE_URL": database_url,
        "MILEPOST_KAFKA": kafka,
        "MILEPOST_APP": APP,
        "PREFIX": topic_prefix,
    }
    async with asyncpg.create_pool(database_url, min_size=1, max_size=3) as pool:
        await pool.execute(EFFECTS)
        yield Stage(env, kafka, topic, f"{topic_prefix}-books", Effects(pool))


@asynccontextmanager
async def consuming(stage: Stage) -> AsyncIterator[None]:
    async with served(stage.env, "consumers"):
        yield


def placed(first: int, last: int) -> list[Sent]:
    """Return orders by number, with an event of another type before each tenth."""
    found: list[Sent] = []
    for n in range(first, last + 1):
        if n % 10 == 0:
            found.append(Sent(b"{}", headers(IDS.new(), type="test.other")))
        found.append(paid(f"o-{n}"))
    return found


async def done(stage: Stage, effects: int) -> None:
    await until(lambda: stage.effects.value("SELECT count(*) >= $1 FROM effect", effects), within=60)


async def test_a_replay_beside_a_live_group_repeats_nothing(stage: Stage, tmp_path: Path) -> None:
    async with consuming(stage):
        await send(stage.kafka, stage.topic, placed(1, 100))
        await done(stage, 100)
        assert await stage.totals() == (100, 100, 100)
        dry = await stage.begin("--topic", stage.topic, "--since", "0:0", "--until", "0:110")
        await send(stage.kafka, stage.topic, placed(101, 110))
        out, err = await asyncio.wait_for(dry.communicate(), 60)
        assert dry.returncode == 0, err.decode()
        found = json.loads(out.splitlines()[-1])
        assert (found["applied"], found["skipped"], found["missing"], found["ahead"]) == (100, 10, 0, 0)
        await done(stage, 110)
    assert await stage.totals() == (110, 110, 110), "none for 1 to 100 again, one each for 101 to 110"

    lost = [f"o-{n}" for n in range(1, 100, 2)]
    await stage.effects.value(
        "WITH gone AS (DELETE FROM effect WHERE text = ANY ($1) RETURNING event)"
        " DELETE FROM milepost.inbox USING gone WHERE event_id = gone.event",
        lost,
    )
    report = tmp_path / "report.jsonl"
    words = ["--topic", stage.topic, "--since", "0:0", "--apply", "--reason", "test", "--report", str(report)]
    replay = await stage.killed(*words, end=121, SLOW="0.02")
    effects, mails, runs = await stage.totals()
    assert 60 < effects < 110 and mails == 110 + effects - 60 and runs == 110
    resumed = await stage.replay("--resume", replay, "--report", str(report))
    assert (resumed["applied"], resumed["replayed"], resumed["skipped"]) == (60, 50, 11)
    assert await stage.totals() == (110, 160, 110), "one effect each, and no run is started again"
    lines = [json.loads(line) for line in report.read_text().splitlines()]
    assert [line["offset"] for line in lines] == list(range(121))
    assert Counter(line["outcome"] for line in lines) == {"applied": 60, "replayed": 50, "skipped": 11}
    assert await stage.effects.value("SELECT reason FROM milepost.audit WHERE act = 'replay'") == "test"
    assert Counter(await stage.effects.orders()) == Counter(f"o-{n}" for n in range(1, 111))


async def test_a_killed_dry_run_goes_on_and_reports_the_same(stage: Stage, tmp_path: Path) -> None:
    ids = [IDS.new() for _ in range(MANY)]
    await send(stage.kafka, stage.topic, [paid(f"o-{n}", event_id=ids[n]) for n in range(MANY)])
    await stage.effects.pool.executemany(
        "INSERT INTO milepost.consumer_position (consumer, topic, partition, next_offset) VALUES ($1, $2, 0, $3)",
        [(stage.consumer, stage.topic, MANY)],
    )
    words = ["--topic", stage.topic, "--since", "0:5"]
    whole, cut = tmp_path / "whole.jsonl", tmp_path / "cut.jsonl"
    expected = await stage.replay(*words, "--report", str(whole))
    assert expected["missing"] == MANY - 5
    replay = await stage.killed(*words, "--report", str(cut), end=MANY)
    with cut.open("ab") as file:
        file.write(b'{"half a li')
    found = await stage.replay("--resume", replay, "--report", str(cut))
    assert {**found, "replay": None} == {**expected, "replay": None}
    assert cut.read_bytes() == whole.read_bytes()
    again = await stage.replay("--resume", replay, "--report", str(cut))
    assert again == found and cut.read_bytes() == whole.read_bytes()
