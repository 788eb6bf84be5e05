"""The examples of docs/publishing.md, as they stand there."""

from __future__ import annotations

import base64
import inspect
import json
import re
from typing import Any

import pytest

from tests.support.house import ROOT
from tests.support.outbox import connected

PAGE = (ROOT / "docs" / "publishing.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.M | re.S)


async def test_they_publish_what_they_say(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILEPOST_DATABASE_URL", database_url)
    monkeypatch.setenv("MILEPOST_ENCRYPTION_KEYS", "k:" + base64.b64encode(b"k" * 32).decode())
    page: dict[str, Any] = {"__name__": "page"}
    for block in blocks("python"):
        exec(compile(block, "docs/publishing.md", "exec"), page)
    called = 0
    for thing in list(page.values()):
        if (
            inspect.isfunction(thing)
            and thing.__module__ == "page"
            and not inspect.signature(thing).parameters
        ):
            called += 1
            result = thing()
            if inspect.isawaitable(result):
                await result
    assert called == 7
    async with connected(database_url) as (connection,):
        for block in blocks("sql"):
            await connection.execute(block)
        rows = await connection.fetch("SELECT aggregateid, type, payload FROM milepost.outbox ORDER BY seq")
    told = [(row["aggregateid"], row["payload"] and row["type"]) for row in rows]
    placed = "shop.order-placed"
    assert told == [
        *((f"o-{n}", placed) for n in range(1, 7)),
        ("o-1", None),
        ("o-1", "shop.card-charged"),
        ("o-7", placed),
        ("o-8", placed),
        ("o-8", None),
    ]
    assert json.loads(rows[-3]["payload"]) == {"order_id": "o-7"} and b"4111" not in rows[7]["payload"]
