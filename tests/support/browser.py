"""Chromium, driven as a person uses it."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page, async_playwright

#: Where Chromium is, unless CHROMIUM says otherwise.
FOUND = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
#: How a page may be looked at: colours and the size of the window.
DRESSES: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light", "viewport": {"width": 1360, "height": 900}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1360, "height": 900}},
    "phone": {"color_scheme": "light", "viewport": {"width": 390, "height": 844}, "has_touch": True},
}
needs_browser = pytest.mark.skipif(
    FOUND is None, reason="Chromium is not installed (Debian: apt install chromium)"
)


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """Run a browser while the block lasts."""
    async with async_playwright() as player:
        browser = await player.chromium.launch(executable_path=FOUND, args=list(FLAGS))
        try:
            yield browser
        finally:
            await browser.close()


class Reader:
    """A page of somebody's, and what its console said.

    Attributes:
        base: Address of the console.
        said: Errors and warnings of the browser's console, and errors of scripts.
    """

    def __init__(self, page: Page, base: str) -> None:
        self.page, self.base = page, base
        self.said: list[str] = []
        page.on("console", lambda m: self.said.append(m.text) if m.type in {"error", "warning"} else None)
        page.on("pageerror", lambda error: self.said.append(str(error)))

    async def open(self, path: str, status: int = 200) -> Page:
        """Go to a page."""
        answer = await self.page.goto(self.base + path)
        assert answer is not None and answer.status == status, (path, answer and answer.status)
        return self.page

    async def sign_in(self, token: str) -> None:
        """Sign in by a token."""
        await self.page.goto(self.base + "/sign-in")
        await self.page.fill("#token", token)
        await self.page.click("main button")
        await self.page.wait_for_url(self.base + "/")

    async def violations(self) -> list[str]:
        """Return what axe finds that is serious or critical."""
        found = await Axe().run(self.page)
        return [
            f"{one['id']}: {one['help']}: {[node['html'][:160] for node in one['nodes'][:3]]}"
            for one in found.response["violations"]
            if one["impact"] in {"serious", "critical"}
        ]


@asynccontextmanager
async def reader(browser: Browser, base: str, token: str, **dress: Any) -> AsyncIterator[Reader]:
    """Give somebody a window who has signed in; nothing may be said in its console."""
    context = await browser.new_context(**{**DRESSES["light"], **dress})
    context.set_default_timeout(8000)
    try:
        made = Reader(await context.new_page(), base)
        await made.sign_in(token)
        yield made
        assert made.said == []
    finally:
        await context.close()
