"""The campaign example's web process: who gets a campaign is written down when it is placed, and never again."""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import httpx
import pytest

from tests.support.web import http_server

READERS = [{"id": n, "address": f"reader-{n}@example.com", "audience": "everybody"} for n in range(3)]
SPRING = {"campaign_id": "spring", "issue": "spring", "audience": "everybody"}
AGAIN = {"campaign_id": "again", "issue": "spring", "failed_of": "spring"}


@pytest.fixture
async def web(database_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the web process, which knows three readers."""
    monkeypatch.setenv("MILEPOST_DATABASE_URL", database_url)
    app: Any = importlib.reload(importlib.import_module("milepost.examples.campaign.service"))
    async with http_server(app.api) as client:
        assert (await client.post("/readers", json=READERS)).status_code == 200
        yield client


async def rows(url: str, sql: str) -> list[tuple[Any, ...]]:
    connection = await asyncpg.connect(url)
    try:
        return [tuple(row) for row in await connection.fetch(sql)]
    finally:
        await connection.close()


async def test_who_comes_later_is_not_in_a_campaign_that_is_asked_for_again(
    web: httpx.AsyncClient, database_url: str
) -> None:
    first = await web.post("/campaigns", json=SPRING)
    later = {"id": 9, "address": "later@example.com", "audience": "everybody"}
    moved = {**READERS[0], "address": "moved@example.com"}
    assert (await web.post("/readers", json=[later, moved])).status_code == 200
    again = await web.post("/campaigns", json=SPRING)
    other = await web.post("/campaigns", json={**SPRING, "audience": "club"})
    assert [answer.status_code for answer in (first, again, other)] == [202, 202, 409]
    assert first.json() == again.json()
    assert await rows(database_url, "SELECT n, reader, address FROM recipient ORDER BY n") == [
        (n, n, f"reader-{n}@example.com") for n in range(3)
    ]
    assert await rows(database_url, "SELECT count(*) FROM milepost.run") == [(1,)]
    assert (await web.get("/campaigns")).json() == {"spring": {"recipients": 3, "sent": 0}}


async def test_a_rerun_goes_to_those_who_were_not_reached_with_the_address_of_today(
    web: httpx.AsyncClient, database_url: str
) -> None:
    await web.post("/campaigns", json=SPRING)
    early = await web.post("/campaigns", json=AGAIN)
    assert early.status_code == 409, "spring has not ended"
    assert await rows(database_url, "SELECT id FROM campaign") == [("spring",)]
    await rows(database_url, "UPDATE recipient SET message_id = 'm-' || n WHERE reader <> 1")
    await rows(database_url, "UPDATE campaign SET sent = 2, failed = 1")
    await web.post("/readers", json=[{**READERS[1], "address": "moved@example.com"}])
    assert (await web.post("/campaigns", json=AGAIN)).status_code == 202
    assert await rows(
        database_url, "SELECT n, reader, address FROM recipient WHERE campaign_id = 'again'"
    ) == [(0, 1, "moved@example.com")]
