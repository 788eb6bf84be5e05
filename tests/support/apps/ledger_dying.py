"""The ledger's service in a process that kills itself (SIGKILL) in the middle of a batch of changes.

Table `fault` says when, under the run "batch": before = what was decided is written and not committed; after = it is
committed, and nobody in the process knows yet.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import asyncpg
from milepost.consumers import grouping, store_many, together

from tests.support.apps.ledger_service import service

__all__ = ["service"]

#: Runs of a batch that is worth dying in.
MANY = 4
_TAKE = (
    "UPDATE fault SET remaining = remaining - 1"
    " WHERE run = 'batch' AND point = $1 AND remaining > 0 RETURNING true"
)
_store, _in_transaction = store_many.store_decisions, grouping.Group._in_transaction


async def _die(point: str) -> None:
    connection = await asyncpg.connect(os.environ["MILEPOST_DATABASE_URL"])
    try:
        ordered = await connection.fetchval(_TAKE, point)
    finally:
        await connection.close()
    if ordered:
        os.kill(os.getpid(), signal.SIGKILL)


async def _storing(connection: Any, many: Sequence[Any], ids: Any) -> set[UUID]:
    stored = await _store(connection, many, ids)
    if len(stored) >= MANY:
        await _die("before")
    return stored


async def _committing(group: grouping.Group, batch: Sequence[Any]) -> Sequence[Any]:
    left = await _in_transaction(group, batch)
    if len(batch) - len(left) >= MANY:
        await _die("after")
    return left


setattr(together, "store_decisions", _storing)  # noqa: B010 - what dies stands in for what does not
setattr(grouping.Group, "_in_transaction", _committing)  # noqa: B010
