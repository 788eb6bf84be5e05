"""A run as text for people: its steps and what happened to it, in order."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import asyncpg

from .store import Sql

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

#: Runs in one report.
MOST = 5
#: Longest text of one value.
LONGEST = 160


async def timeline(connection: asyncpg.Connection[Any] | PoolConnectionProxy[Any], run: UUID) -> str:
    """Return one run's state, steps and history; times count from its start."""
    head = await connection.fetchrow(Sql.timeline_run, run)
    if head is None:
        return f"run {run}: not there"
    begun: datetime = head["created_at"]
    steps = [_step(row, begun) for row in await connection.fetch(Sql.timeline_steps, run)]
    history = [_entry(row, begun) for row in await connection.fetch(Sql.timeline_history, run)]
    age = _since(begun, head["now"])
    title = f"{head['saga']}/{head['key']}  {head['state']}{_because(head)}, {age} after its start"
    return "\n".join(
        [title, "  steps", *_aligned(steps or [["none"]]), "  history", *_aligned(history or [["none"]])]
    )


async def timelines(url: str) -> str:
    """Return the latest runs of a kit's database, and its dead letters; items of a fan-out only where there is room.

    Args:
        url: The database, by itself: this may run beside the kit's own loop.
    """
    connection = await asyncpg.connect(url, timeout=5)
    try:
        runs = await connection.fetch(Sql.timeline_runs, MOST)
        texts = [await timeline(connection, row["id"]) for row in runs]
        letters = await connection.fetch(Sql.dead_letters)
    finally:
        await connection.close(timeout=5)
    if letters:
        rows = [
            [row["scope"], row["topic"], row["stage"], row["code"], _short(row["message"])] for row in letters
        ]
        texts.append("\n".join(["dead letters", *_aligned(rows)]))
    return "\n\n".join(texts)


def _because(head: asyncpg.Record) -> str:
    parts = [head["code"] or "", f"cause {head['cause']}" if head["cause"] else ""]
    text = ", ".join(part for part in parts if part)
    return f" ({text})" if text else ""


def _step(row: asyncpg.Record, begun: datetime) -> list[str]:
    tries = {0: "", 1: "1 try"}.get(row["attempt"], f"{row['attempt']} tries")
    probes = f", {row['probes']} probes" if row["probes"] else ""
    due = f"due {_since(begun, row['wake_at'])}" if row["wake_at"] else ""
    why = ": ".join(part for part in (row["code"], row["message"]) if part)
    return [_named(row["name"], row["iteration"]), row["state"], tries + probes, due, _short(why)]


def _entry(row: asyncpg.Record, begun: datetime) -> list[str]:
    data = json.loads(row["data"])
    step = _named(row["step"] or "", row["iteration"])
    step = f"{step}, try {row['attempt']}" if row["attempt"] else step
    told = ", ".join(f"{name}={value}" for name, value in data.items())
    return [_since(begun, row["at"]), row["event"], step, _short(told)]


def _named(step: str, iteration: str) -> str:
    """Return a step with its round, as `milepost runs show` writes it."""
    return f"{step}#{iteration}" if iteration else step


def _since(begun: datetime, instant: datetime) -> str:
    return f"+{instant - begun}"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "    " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
