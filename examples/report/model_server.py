"""A stand-in for a model: it speaks Ollama's /api/chat, writes reports by rule, and not always good ones.

Run it with `uvicorn milepost.examples.report.model_server:api`; COMPANY_LEDGER names its book. MODEL_SCRIPT says by
commas how its answers are, one after the other: good, incomplete (a section is missing), invents (a commit that is not
there), down (503). After the last one they are good.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.responses import JSONResponse
from starlette.responses import Response

from ..stage.company import ledger_path
from .book import Book

_TITLE = re.compile(r"Begin with the line `([^`]+)`")
_COMMIT = re.compile(r"^- `([0-9a-f]+)` (.+?): (.*) \((\d+) files, \+(\d+) -(\d+)\)$", re.M)


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    app.state.book = Book(ledger_path())
    yield
    app.state.book.close()


api = FastAPI(title="model", lifespan=_lifespan)


@api.get("/api/version")
async def version() -> dict[str, str]:
    """Tell that it answers, as Ollama does."""
    return {"version": "0.0.0"}


@api.post("/api/chat")
async def chat(body: dict[str, Any]) -> Response:
    """Answer a chat, without streaming."""
    book: Book = api.state.book
    task = str(body["messages"][-1]["content"])
    script = os.environ.get("MODEL_SCRIPT", "").split(",")
    before = len(book.entries("chat"))
    how = (script[before] if before < len(script) else "") or "good"
    book.write("chat", how, task)
    if how == "down":
        return JSONResponse({"error": "model is loading"}, status_code=503)
    message = {"role": "assistant", "content": written(task, how)}
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return JSONResponse(
        {
            "model": body["model"],
            "created_at": at,
            "message": message,
            "done": True,
            "done_reason": "stop",
        }
    )


def written(task: str, how: str) -> str:
    """Write a report by the rules of the task, or against them: "incomplete", "invents"."""
    title = _TITLE.search(task)
    commits = _COMMIT.findall(task)
    ids = ["0badc0de01" if how == "invents" else commits[0][0], *(id for id, *_ in commits[1:])]
    changes = [
        f"- `{id}` {subject}, by {who}" for id, (_, who, subject, *_) in zip(ids, commits, strict=True)
    ]
    added, removed = (sum(int(commit[n]) for commit in commits) for n in (4, 5))
    numbers = ["", "## Numbers", "", f"{len(commits)} commits, {added} lines added, {removed} removed."]
    lines = [
        title.group(1) if title else "# Report",
        "",
        "## Summary",
        "",
        f"{len(commits)} changes were made that day, and each of them is listed below with its author.",
        "",
        "## Changes",
        "",
        *changes,
        *([] if how == "incomplete" else numbers),
    ]
    return "\n".join(lines)
