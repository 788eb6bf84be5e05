"""The clients of model and pages: plain httpx."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self

import httpx

from .contracts import Config, Page

#: Version of Notion's API that this speaks.
NOTION_VERSION = "2022-06-28"
#: Longest wait for the page server, in seconds. Beyond it nobody here knows whether the page was made.
PAGES_TIMEOUT = 10.0
#: Most characters of one piece of text: https://developers.notion.com/reference/request-limits
_PIECE = 2000


class Model:
    """A model behind Ollama's HTTP API: https://docs.ollama.com/api/chat."""

    def __init__(self, http: httpx.AsyncClient, name: str) -> None:
        self._http = http
        self.name = name

    @classmethod
    @asynccontextmanager
    async def connect(cls) -> AsyncIterator[Self]:
        """Open the client for as long as the block lasts."""
        config = Config()
        headers = {"user-agent": config.caller}
        async with httpx.AsyncClient(
            base_url=config.model_url, timeout=config.model_timeout, headers=headers
        ) as http:
            yield cls(http, config.model)

    async def write(self, task: str) -> str:
        """Return the model's answer to a task.

        Raises:
            httpx.HTTPError: It did not answer, or not with 200.
        """
        body = {
            "model": self.name,
            "messages": [{"role": "user", "content": task}],
            "stream": False,
            "options": {"temperature": 0},
        }
        answer = _json(await self._http.post("/api/chat", json=body))
        return f"{str(answer['message']['content']).strip()}\n"


class Pages:
    """Pages behind Notion's HTTP API, which makes a page for every call and does not dedupe."""

    def __init__(self, http: httpx.AsyncClient, database: str) -> None:
        self._http = http
        self._database = database

    @classmethod
    @asynccontextmanager
    async def connect(cls) -> AsyncIterator[Self]:
        """Open the client for as long as the block lasts."""
        config = Config()
        headers = {
            "user-agent": config.caller,
            "authorization": f"Bearer {config.pages_token.get_secret_value()}",
            "notion-version": NOTION_VERSION,
        }
        async with httpx.AsyncClient(
            base_url=config.pages_url, timeout=PAGES_TIMEOUT, headers=headers
        ) as http:
            yield cls(http, config.pages_database)

    async def make(self, external_id: str, heading: str, markdown: str) -> Page:
        """Make a page.

        Raises:
            httpx.HTTPError: No answer came, so it may or may not have been made; or the answer is no.
        """
        body = {
            "parent": {"database_id": self._database},
            "properties": {
                "Name": {"title": _text(heading)},
                "External ID": {"rich_text": _text(external_id)},
            },
            "children": blocks(markdown),
        }
        return _page(_json(await self._http.post("/v1/pages", json=body)))

    async def find(self, external_id: str) -> Page | None:
        """Look a page up by our id of it; None when there is none."""
        only = {"property": "External ID", "rich_text": {"equals": external_id}}
        body = {"filter": only, "page_size": 1}
        found = _json(await self._http.post(f"/v1/databases/{self._database}/query", json=body))["results"]
        return _page(found[0]) if found else None


def blocks(markdown: str) -> list[dict[str, Any]]:
    """Return a report's lines as blocks of a page: headings, list items, paragraphs."""
    kinds = {"# ": "heading_1", "## ": "heading_2", "- ": "bulleted_list_item"}
    made = []
    for line in (line.strip() for line in markdown.splitlines()):
        mark = next((mark for mark in kinds if line.startswith(mark)), "")
        kind = kinds.get(mark, "paragraph")
        if line:
            made.append(
                {"object": "block", "type": kind, kind: {"rich_text": _text(line.removeprefix(mark))}}
            )
    return made


def _text(text: str) -> list[dict[str, Any]]:
    pieces = [text[at : at + _PIECE] for at in range(0, len(text), _PIECE)]
    return [{"type": "text", "text": {"content": piece}} for piece in pieces]


def _page(answer: Any) -> Page:
    return Page(id=str(answer["id"]), url=str(answer["url"]))


def _json(response: httpx.Response) -> Any:
    response.raise_for_status()
    return response.json()
