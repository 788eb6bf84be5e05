"""`milepost runs show` says what a queued run waits for and who has it."""

from __future__ import annotations

import asyncio
import json

import pytest
from milepost.console import main

from tests.support.locks import locks, sale


async def test_show_says_who_has_the_lock_and_who_waits(
    database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MILEPOST_DATABASE_URL", database_url)
    monkeypatch.delenv("MILEPOST_APP", raising=False)

    async def shown(*words: str) -> str:
        assert await asyncio.to_thread(main.run, ["runs", *words]) == 0
        return capsys.readouterr().out

    order = sale()
    async with locks(database_url, order) as it:
        first, *_ = [await it.start(order, f"o-{n}") for n in (1, 2, 3)]
        since = f"{await it.it.value('SELECT since FROM milepost.resource'):%Y-%m-%d %H:%MZ}"
        assert "holds lock stock:tea, 2 waiting" in await shown("show", "order/o-1")
        assert f"order/o-2  PENDING  waits for lock stock:tea held by order/o-1 since {since}" in await shown(
            "show", "order/o-2"
        )
        assert f"held by order/o-1 since {since}, 1 before it" in await shown("show", "order/o-3")
        lock = json.loads(await shown("show", "order/o-3", "--json"))["lock"]
        assert (lock.pop("since") or "").startswith("20")
        assert lock == {
            "name": "stock:tea",
            "held": False,
            "holder": "order/o-1",
            "ahead": 1,
            "waiting": 2,
        }
        assert (await shown("list")).count("PENDING") == 3
        await it.sold(first)
        assert "lock" not in await shown("show", "order/o-1")
        assert "holds lock stock:tea, 1 waiting" in await shown("show", "order/o-2")
