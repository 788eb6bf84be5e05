"""The examples of docs/fan-out.md, as they stand there: a campaign, and another one for what failed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from milepost import FanOut, Milepost, Refused, RunState
from milepost.testing import open_kit

from tests.support.kitshop import NOWHERE

PAGE = Path(__file__).parents[3] / "docs" / "fan-out.md"


class Post:
    """Sends to everybody but those who have moved, until they are found."""

    def __init__(self) -> None:
        self.moved = {"eve"}
        self.sent: list[str] = []
        self.reports: list[str] = []

    async def send(self, customer: str, *, key: str) -> None:
        if customer in self.moved:
            raise Refused("MOVED")
        self.sent.append(customer)

    async def report(self, text: str) -> None:
        self.reports.append(text)


async def test_a_campaign_and_its_rest() -> None:
    first, _, second = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    names: dict[str, Any] = {"Post": Post, "__name__": "page"}
    for block in (first, second):
        exec(compile(block, str(PAGE), "exec", dont_inherit=True), names)
    campaign, rest, post = names["campaign"], names["rest"], Post()
    service: Milepost = names["service"]
    service._settings = NOWHERE
    async with open_kit(service) as kit:
        kit.provide(Post, post)
        run = await kit.start(
            campaign, names["Campaign"](name="spring", customers=["ann", "bob", "cid", "eve"])
        )
        await kit.until(run, RunState.PARTIALLY_SUCCEEDED)
        assert post.reports == ["3 of 4 sent, 1 failed"]
        post.moved.clear()
        left = await kit.start(rest, names["Rest"](name="summer", of=run))
        await kit.until(left, RunState.SUCCEEDED)
        assert await kit.result(left, names["again"]) == FanOut(total=1, succeeded=1, failed=0)
    assert sorted(post.sent) == ["ann", "bob", "cid", "eve"]
