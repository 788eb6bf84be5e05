"""The ledger's service in a process that kills itself (SIGKILL) in the middle of a batch of changes.

Table `fault` says when, under the run "batch": before = it is decided and not stored; after = it is stored, and
nobody in the process knows yet.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg
from milepost.consumers import store_many, together

from tests.support.apps.ledger_service import service

__all__ = ["service"]

#: Runs of a batch that is worth dying in.
MANY = 4
_TAKE = (
    "UPDATE fault SET remaining = remaining - 1"
    " WHERE run = 'batch' AND point = $1 AND remaining > 0 RETURNING true"
)
_store = store_many.store_decisions


async def _die(point: str) -> None:
    connection = await asyncpg.connect(os.environ["MILEPOST_DATABASE_URL"])
    try:
        ordered = await connection.fetchval(_TAKE, point)
    finally:
        await connection.close()
    if ordered:
        os.kill(os.getpid(), signal.SIGKILL)


async def _storing(connection: Any, many: Sequence[Any], ids: Any) -> Mapping[UUID, datetime]:
    if len(many) >= MANY:
        await _die("before")
    stored = await _store(connection, many, ids)
    if len(stored) >= MANY:
        await _die("after")
    return stored


setattr(together, "store_decisions", _storing)  # noqa: B010 - what dies stands in for what does not
