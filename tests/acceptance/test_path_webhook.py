"""A webhook's whole way: the web process stores it, `milepost serve` publishes what it means, and the saga goes on."""

from __future__ import annotations

import importlib
from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest
from fastapi import FastAPI
from starlette.routing import Route

from tests.support.hooks import sent
from tests.support.process import served
from tests.support.talk import make_topic
from tests.support.waiting import until
from tests.support.web import http_server


async def test_a_webhook_ends_the_wait_of_a_run(
    database_url: str, kafka: str, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = {
        "MILEPOST_DATABASE_URL": database_url,
        "MILEPOST_KAFKA": kafka,
        "MILEPOST_APP": "tests.support.apps.hook_service:service",
        "HOOK_PREFIX": topic_prefix,
    }
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    app: Any = importlib.reload(importlib.import_module("tests.support.apps.hook_service"))
    await make_topic(kafka, f"{topic_prefix}-arrivals")
    api = FastAPI()
    api.routes.append(Route("/carrier", app.carrier))
    pool = await asyncpg.create_pool(database_url, min_size=1, max_size=2)
    try:
        async with http_server(api) as client:
            async with app.service.transaction() as tx:
                run = await app.service.start(tx, app.parcel, app.Parcel(id="p-1"))
            body = b'{"id": "p-1"}'
            headers = sent("e-1", body, datetime.now(UTC))
            for said in ("stored", "repeated"):
                answer = await client.post("/carrier", content=body, headers=headers)
                assert (answer.status_code, answer.json()) == (200, {"status": said})
            async with served(env, ready=90):
                state = "SELECT state FROM milepost.run WHERE id = $1 AND state = 'SUCCEEDED'"
                await until(lambda: pool.fetchval(state, run.id), within=90, what="the run's end")
                again = await client.post("/carrier", content=body, headers=headers)
                assert again.json() == {"status": "repeated"}
        assert await pool.fetchval("SELECT state FROM milepost.webhook") == "PROCESSED"
        assert await pool.fetchval("SELECT count(*) FROM milepost.signal") == 1
        assert await pool.fetchval("SELECT count(*) FROM milepost.outbox WHERE type = 'hook.arrived'") == 1
    finally:
        await app.service.close()
        await pool.close()
