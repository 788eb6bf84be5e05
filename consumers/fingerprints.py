"""Reuse of runs by fingerprint: of equal runs the last one stands for all, and is found instead of a new one."""

from __future__ import annotations

import json
from typing import Any

import asyncpg

from ..sagas.context import RunRef
from ..sagas.fingerprints import Fingerprint
from ..schemas.states import FINAL_RUN_STATES, RunState
from ..streams.queries import Queries


class Sql(Queries, file="fingerprints.sql"):
    """Queries of this module."""

    claim_fingerprint: str
    holder_of_fingerprint: str
    release_fingerprint: str
    forget_fingerprint: str
    point_key: str


async def claim(
    connection: asyncpg.Connection[Any], ref: RunRef, found: Fingerprint, *, reuse: bool
) -> RunRef | None:
    """Let a new run stand for its fingerprint, unless an earlier one may be used instead.

    A unique index lets one run stand for a fingerprint: of two starts at once the second waits for the first to commit,
    and then sees its run.

    Args:
        connection: In the transaction of the start, which has the run's key already.
        ref: The new run.
        reuse: Whether a run that has succeeded, or is under way, is used instead.

    Returns:
        The earlier run, whose name the new key is from now on; None when the new run is to begin.
    """
    while True:
        row = (ref.id, ref.tenant, ref.saga, found.sha256, json.dumps(found.parts, ensure_ascii=False))
        if await connection.fetchval(Sql.claim_fingerprint, *row) is not None:
            return None
        holder = await connection.fetchrow(Sql.holder_of_fingerprint, ref.tenant, ref.saga, found.sha256)
        if holder is None:
            continue
        state = None if holder["state"] is None else RunState(holder["state"])
        if reuse and state is not None and (state is RunState.SUCCEEDED or state not in FINAL_RUN_STATES):
            outcome = state.value if state in FINAL_RUN_STATES else None
            await connection.execute(Sql.point_key, ref.tenant, ref.saga, ref.key, holder["run_id"], outcome)
            return RunRef(
                id=holder["run_id"], tenant=ref.tenant, saga=ref.saga, key=holder["key"], reused=True
            )
        await connection.execute(Sql.release_fingerprint, holder["run_id"])


async def forget(connection: asyncpg.Connection[Any], ref: RunRef) -> None:
    """Take a claim back whose run does not begin after all."""
    await connection.execute(Sql.forget_fingerprint, ref.id)
