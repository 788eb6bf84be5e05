"""The notify example's web process: a job's id is its idempotency key, and a webhook is what its signature says."""

from __future__ import annotations

import importlib
import time
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import httpx
import pytest
from milepost.examples.notify.hooks import new_secret, signed

from tests.support.web import http_server

JOB = {"id": "n-1", "recipient": "ann@example.com", "name": "Ann"}


@pytest.fixture
async def web(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[httpx.AsyncClient, str]]:
    """A client of the web process, and the provider's secret."""
    secret = new_secret()
    monkeypatch.setenv("MILEPOST_DATABASE_URL", database_url)
    monkeypatch.setenv("NOTIFY_SECRET", secret)
    app: Any = importlib.reload(importlib.import_module("milepost.examples.notify.service"))
    async with http_server(app.api) as client:
        yield client, secret


async def test_a_job_asked_for_again_is_the_same_run_and_another_one_is_409(
    web: tuple[httpx.AsyncClient, str], database_url: str
) -> None:
    client, _ = web
    first = await client.post("/notifications", json=JOB)
    again = await client.post("/notifications", json=JOB)
    other = await client.post("/notifications", json={**JOB, "recipient": "bob@example.com"})
    assert [answer.status_code for answer in (first, again, other)] == [202, 202, 409]
    assert first.json() == again.json()
    assert "MP302" in other.text
    connection = await asyncpg.connect(database_url)
    try:
        rows = await connection.fetch("SELECT id, recipient, state FROM notification")
        assert [tuple(row) for row in rows] == [("n-1", "ann@example.com", "QUEUED")]
        assert await connection.fetchval("SELECT count(*) FROM milepost.run") == 1
    finally:
        await connection.close()


async def test_a_webhook_of_a_stranger_is_refused_and_one_that_means_nothing_is_taken(
    web: tuple[httpx.AsyncClient, str], database_url: str
) -> None:
    client, secret = web
    body = b'{"type": "message.opened", "message": "m-1"}'
    for key, status in ((new_secret(), 401), (secret, 200)):
        headers = signed("e-1", body, key, int(time.time()))
        answer = await client.post("/hooks/provider", content=body, headers=headers)
        assert answer.status_code == status
    connection = await asyncpg.connect(database_url)
    try:
        assert await connection.fetchval("SELECT count(*) FROM milepost.webhook") == 1
    finally:
        await connection.close()
