"""Many runs in PostgreSQL at once: load them in one statement, store their decisions in one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg

from ..outbox.model import OutboxRow, columns
from ..schemas.ids import Ids
from ..streams.queries import Queries
from .batching import ToStore
from .rows import dump, history_json, settled_json, steps_json


class Sql(Queries, file="many.sql"):
    """Queries of this module."""

    many_by_index: str
    many_by_session: str
    load_runs: str
    store_decisions: str
    take_run_keys: str
    insert_runs: str
    now: str


async def load_rows(
    connection: asyncpg.Connection[Any], run_ids: Sequence[UUID]
) -> Mapping[UUID, asyncpg.Record]:
    """Read runs with their steps in one statement.

    Returns:
        For each run that exists its row, for `store.loaded`.
    """
    return {row["id"]: row for row in await connection.fetch(Sql.load_runs, run_ids)}


async def store_decisions(
    connection: asyncpg.Connection[Any], many: Sequence[ToStore], ids: Ids
) -> Mapping[UUID, datetime]:
    """Store decisions of distinct runs, without waits and locks, and their messages in one statement.

    Args:
        connection: With the settings of `many_by_index`.
        many: What to store.
        ids: For reconciliation rows.

    Returns:
        For each that was stored the database's clock; the others have moved, or somebody holds their rows.
    """
    sent = [(one.before.id, row) for one in many for row in one.rows]
    rows: list[OutboxRow] = [row for _, row in sent]
    stored = await connection.fetch(
        Sql.store_decisions,
        *_run_columns(many),
        _lines((one.before.id, steps_json(one.decision)) for one in many),
        _lines((one.before.id, history_json(one.before, one.decision)) for one in many),
        _lines((one.before.id, settled_json(one.decision, ids)) for one in many),
        [run_id for run_id, _ in sent],
        *columns(rows),
    )
    return {row["id"]: row["now"] for row in stored}


def _run_columns(many: Sequence[ToStore]) -> Iterable[list[object]]:
    values = [
        (
            one.before.id,
            one.before.version,
            one.decision.run.state.value,
            one.decision.run.code,
            one.decision.run.cause,
            one.before.history_n + len(one.decision.history),
            one.decision.run.finish_n,
            one.decision.run.wake_at,
            one.decision.run.finished_at,
            one.decision.run.active_for,
            one.decision.run.active_since,
            one.decision.run.no_undo,
        )
        for one in many
    ]
    return ([row[n] for row in values] for n in range(len(values[0])))


def _lines(parts: Iterable[tuple[UUID, Sequence[dict[str, Any]]]]) -> str:
    found: list[dict[str, Any]] = []
    for run_id, lines in parts:
        text = str(run_id) if lines else ""
        for line in lines:
            line["run_id"] = text
        found.extend(lines)
    return dump(found)
