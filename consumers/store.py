"""Runs in PostgreSQL: load one with its steps, store one decision by compare-and-set."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

import asyncpg

from ..inbox import signals
from ..outbox import publish
from ..outbox.model import OutboxRow, columns
from ..sagas.model import Decision, Run
from ..schemas.ids import Ids
from ..streams.queries import Queries
from .rows import Loaded, dump, history_json, loaded, new_json, settled_json, steps_json


class Sql(Queries):
    """Queries of this room."""

    load_run: str
    lock_run: str
    store_decision: str
    take_run_key: str
    find_run_key: str
    waits_for: str
    take_lease: str
    renew_lease: str
    end_lease: str
    forget_workers: str
    lease_ended: str
    stale_steps: str
    note_timeline: str
    wake_by_index: str
    wake_due: str


class Conflict(Exception):
    """Somebody else changed the run (or matched its wait) first; decide again on what is there now."""


async def load_run(connection: asyncpg.Connection[Any], run_id: UUID, *, lock: bool = False) -> Loaded | None:
    """Read a run with its steps in one statement.

    Args:
        connection: With an open transaction when `lock` is set.
        run_id: The run.
        lock: Lock the run's row first, in a statement of its own, so that the read sees what the last holder wrote.

    Returns:
        The run, or None when there is none.
    """
    if lock:
        await connection.execute(Sql.lock_run, run_id)
    row = await connection.fetchrow(Sql.load_run, run_id)
    return None if row is None else loaded(row)


async def store_decision(
    connection: asyncpg.Connection[Any],
    before: Run,
    decision: Decision,
    rows: Sequence[OutboxRow],
    ids: Ids,
    *,
    begins: str | None = None,
) -> None:
    """Store a decision and its outgoing messages in one statement.

    With waits to open or close the connection must be in a transaction, for they take statements of their own.

    Args:
        connection: Where to write.
        before: The run as it was decided on; its version must still be the stored one.
        decision: What to store.
        rows: Messages and events that leave with it.
        ids: For reconciliation rows.
        begins: For a run that is not there yet, its service.

    Raises:
        Conflict: The run's version has moved, or a wait to be closed has been matched. Nothing is to be committed.
    """
    after = decision.run
    stored = await connection.fetchval(
        Sql.store_decision,
        before.id,
        before.version,
        after.state.value,
        after.code,
        after.cause,
        before.history_n + len(decision.history),
        after.finish_n,
        after.wake_at,
        after.finished_at,
        dump(steps_json(decision)),
        dump(history_json(before, decision)),
        dump(settled_json(decision, ids)),
        *columns(rows),
        after.active_for,
        after.active_since,
        after.no_undo,
        None if begins is None else dump(new_json(after, begins)),
    )
    if stored != 1:
        raise Conflict
    for wait in decision.closes:
        if not await signals.close_wait(connection, before.id, wait.step, wait.iteration, wait.generation):
            raise Conflict


async def open_waits(
    connection: asyncpg.Connection[Any], decision: Decision, resumes: Iterable[OutboxRow]
) -> None:
    """Register the waits of a stored decision; one that an earlier signal satisfies is resumed by a message.

    Args:
        connection: In the transaction that stored the decision.
        decision: What was stored.
        resumes: The resume message for each of `decision.opens`, in order.
    """
    run = decision.run
    for wait, resume in zip(decision.opens, resumes, strict=True):
        matched = await signals.match_wait(
            connection,
            run_id=run.id,
            tenant=run.tenant,
            step=wait.step,
            iteration=wait.iteration,
            generation=wait.generation,
            type=wait.type,
            key=wait.key,
            broadcast=wait.broadcast,
        )
        if matched:
            await publish.publish_rows(connection, [resume])
