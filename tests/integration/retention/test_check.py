"""An inbox that would forget before its topics do is refused where a service starts, and named by `check`."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from datetime import timedelta
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from milepost.consumers.memory import too_short, written
from milepost.schemas.settings import Settings

from tests.support.process import ROOT, Served


def settings(**more: Any) -> Settings:
    given: dict[str, Any] = {
        "database_url": "postgresql://x@y/z",
        "redrive_within": timedelta(days=14),
        **more,
    }
    return Settings(**given)


def test_the_words_are_those_of_the_manual() -> None:
    week = timedelta(days=7)
    (refusal,) = too_short(settings(keep_inbox=week), {"orders": week, "for-good": None})
    assert str(refusal) == (
        'MP202 keep_inbox=7d is shorter than topic "orders" retention 7d + longest redrive 14d: an old event could be'
        " applied twice. Set MILEPOST_KEEP_INBOX=21d or more."
    )
    assert too_short(settings(keep_inbox=timedelta(days=21)), {"orders": week, "for-good": None}) == []
    assert (
        len(too_short(settings(keep_inbox=timedelta(days=21) - timedelta(seconds=1)), {"orders": week})) == 1
    )
    assert [written(timedelta(seconds=n)) for n in (86400, 129600, 5400, 61)] == ["1d", "36h", "90m", "61s"]


@pytest.fixture
async def env(database_url: str, kafka: str, topic_prefix: str) -> dict[str, str]:
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    try:
        await admin.create_topics(
            [NewTopic(f"{topic_prefix}.orders", 1, 1, topic_configs={"retention.ms": str(20 * 86_400_000)})]
        )
    finally:
        await admin.close()
    return {
        "MILEPOST_DATABASE_URL": database_url,
        "MILEPOST_KAFKA": kafka,
        "MILEPOST_APP": "tests.support.apps.replay_service:service",
        "PREFIX": topic_prefix,
    }


async def check(env: dict[str, str], *words: str) -> tuple[int, list[dict[str, Any]]]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "milepost.console.main", "--json", "check", *words),
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
    )
    out, _ = await asyncio.wait_for(process.communicate(), 60)
    lines = [json.loads(line) for line in out.splitlines()]
    return process.returncode or 0, [line for line in lines if line.get("check") == "retention"]


async def test_check_and_serve_refuse_an_inbox_that_forgets_too_early(env: dict[str, str]) -> None:
    status, (found,) = await check(env)
    assert (status, found["code"]) == (1, "MP202") and found["text"].endswith(
        "MILEPOST_KEEP_INBOX=34d or more."
    )
    served = await Served(env, "consumers").start(ready=0)
    assert await served.wait(60) == 1
    assert any("MP202" in line for line in served.log)
    status, (found,) = await check({**env, "MILEPOST_KEEP_INBOX": "34d"})
    assert (status, found["severity"]) == (0, "ok")


async def test_check_says_so_and_passes_when_kafka_is_away(env: dict[str, str]) -> None:
    away = {**env, "MILEPOST_KAFKA": "127.0.0.1:1"}
    status, (found,) = await check(away)
    assert (status, found["severity"], found["code"]) == (0, "warning", "MP502")
    status, _ = await check(away, "--strict")
    assert status == 4


async def test_check_and_serve_refuse_what_would_have_to_go_before_its_run(env: dict[str, str]) -> None:
    wrong = {
        **env,
        "MILEPOST_APP": "tests.support.apps.pulse_service:service",
        "MILEPOST_KEEP_HISTORY": "30d",
    }
    status, (found,) = await check(wrong)
    assert (status, found["code"], found["severity"]) == (1, "MP230", "error")
    served = await Served(wrong, "upkeep").start(ready=0)
    assert await served.wait(60) == 1
    assert any("MP230" in line and "keep_history=30d" in line for line in served.log), served.log
    assert (await check({**wrong, "MILEPOST_KEEP_RUNS": "30d"}))[0] == 0
