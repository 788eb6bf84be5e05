"""Starting a run: idempotent by (tenant, saga, key), in the caller's transaction."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any
from uuid import UUID

import asyncpg
from pydantic import BaseModel

from ..sagas import priorities, timing
from ..sagas.context import RunRef
from ..sagas.definition import Definition, text_problem
from ..sagas.facts import Start
from ..sagas.fingerprints import Fingerprint, of_input
from ..sagas.locking import lock_of
from ..sagas.model import Json, Run
from ..sagas.moving import same_intent
from ..sagas.saga import Saga
from ..schemas.errors import StateError, UsageError
from ..schemas.states import RunState
from ..schemas.texts import INDEXED, too_long_to_index
from ..schemas.transaction import AsyncpgTx, Transaction
from ..streams.database import raw_connection, require_read_committed
from ..streams.tracing import current_traceparent, span
from . import fingerprints, resources
from .changes import Changes
from .store import Loaded, Sql


async def start_run(
    changes: Changes,
    tx: AsyncpgTx,
    saga: Saga[Any],
    value: BaseModel,
    tenant: str,
    *,
    reuse: bool = False,
    parent: Run | None = None,
    suffix: str = "",
    run_id: UUID | None = None,
) -> RunRef:
    """Do what `Milepost.start` says; see there.

    Args:
        parent: The run that waits for this one, whose correlation id and trace it has.
        suffix: Added to the key that the saga gives it.
        run_id: Id of the run if it is a new one.
    """
    connection = await raw_connection(tx, "start()")
    await require_read_committed(connection, "start()")
    definition = saga.definition
    problem = text_problem(tenant, longest=200) if tenant else ""
    if problem:
        raise UsageError(
            "MP331", f"start(): tenant {tenant!r} {problem}. Pass a short, stable text, or '' for none."
        )
    encoded, digest = definition.encode_input(value)
    key = definition.key_of(value) + suffix
    ref = RunRef(id=run_id or changes.ids.new(), tenant=tenant, saga=saga.name, key=key)
    if too_long_to_index(tenant, saga.name, ref.key):
        raise UsageError(
            "MP343",
            f"{definition.title}: key= returned {ref.key[:50]!r}..., which with the saga's name and the tenant takes "
            f"more than {INDEXED} bytes. Return a short, stable text.",
        )
    deadline_at = timing.deadline_of(definition, value)
    priority = priorities.of_input(definition, value)
    lock = lock_of(definition, value, tenant)
    rests_on = _rests_on(definition, value, reuse=reuse)
    taken = await connection.fetchval(Sql.take_run_key, tenant, saga.name, ref.key, ref.id, digest)
    if taken is None:
        return await _existing(connection, ref, saga, encoded, digest)
    if rests_on is not None:
        earlier = await fingerprints.claim(connection, ref, rests_on, reuse=reuse)
        if earlier is not None:
            return earlier
    with span(f"start {saga.name}", attributes={"milepost.run": str(ref.id), "milepost.key": ref.key}):
        run = replace(_new_run(ref, saga, encoded, tx, parent), deadline_at=deadline_at, priority=priority)
        if lock is not None:
            try:
                holds = await resources.take(connection, ref, lock, reject=definition.if_locked == "reject")
            except StateError:
                await fingerprints.forget(connection, ref)
                raise
            run = replace(run, resource=lock, holds=holds)
        await _insert(changes, connection, saga, run)
    return ref


def _rests_on(definition: Definition, value: BaseModel, *, reuse: bool) -> Fingerprint | None:
    found = of_input(definition, value)
    if reuse and found is None:
        raise UsageError(
            "MP368",
            f"start(reuse=True): {definition.title} declares no fingerprint=, so nobody knows which runs are equal. "
            "Declare one, or start without reuse.",
        )
    return found


async def _existing(
    connection: asyncpg.Connection[Any], ref: RunRef, saga: Saga[Any], encoded: Json, digest: bytes
) -> RunRef:
    row = await connection.fetchrow(Sql.find_run_key, ref.tenant, ref.saga, ref.key)
    assert row is not None, "a run key is never deleted while its conflict is seen"
    stored = None if row["input"] is None else json.loads(row["input"])
    if row["input_hash"] == digest or _same(saga, row, stored, digest):
        return RunRef(id=row["run_id"], tenant=ref.tenant, saga=ref.saga, key=ref.key)
    changed = _changed(stored, encoded)
    verb = "already runs" if row["outcome"] is None else f"already ran ({row['outcome']})"
    raise StateError(
        "MP302",
        f"start(): {ref} {verb} with a different input (changed: {changed}). The same input returns the existing run; "
        f"a new intent needs a new key. Run: {row['run_id']}",
    )


def _same(saga: Saga[Any], row: asyncpg.Record, stored: Json, digest: bytes) -> bool:
    """Whether it is the same input in an older form, as the saga's upcasters and migrations read it."""
    if stored is None:
        return False
    return same_intent(saga, stored, row["definition"], row["input_version"], digest)


def _changed(old: Any, new: Any) -> str:
    if not isinstance(old, dict) or not isinstance(new, dict):
        return "its input is no longer stored"
    names = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    return ", ".join(names) or "form only"


def _new_run(ref: RunRef, saga: Saga[Any], encoded: Json, tx: AsyncpgTx, parent: Run | None) -> Run:
    envelope = tx._envelope if isinstance(tx, Transaction) else None
    correlation = (envelope.correlation_id or envelope.event_id) if envelope is not None else ""
    traceparent = current_traceparent()
    if parent is not None:
        correlation, traceparent = parent.correlation_id, parent.traceparent or traceparent
    return Run(
        id=ref.id,
        tenant=ref.tenant,
        saga=saga.name,
        key=ref.key,
        definition=saga.version,
        shape=saga.definition.shape,
        policy=saga.definition.policy,
        input_version=saga.definition.input_version,
        input=encoded,
        state=RunState.PENDING,
        correlation_id=correlation or str(ref.id),
        traceparent=traceparent,
        watched=parent is not None,
    )


async def _insert(changes: Changes, connection: asyncpg.Connection[Any], saga: Saga[Any], run: Run) -> None:
    row = await connection.fetchrow(
        Sql.insert_run,
        run.id,
        run.tenant,
        changes.service,
        run.saga,
        run.key,
        run.definition,
        run.shape,
        run.policy,
        json.dumps(run.input, ensure_ascii=False),
        run.correlation_id,
        run.traceparent,
        run.deadline_at,
        saga.definition.active_timeout,
        run.resource,
        run.priority.value,
        run.input_version,
        run.watched,
    )
    assert row is not None, "an insert returns its row"
    since = None if saga.definition.active_timeout is None else row["now"]
    run = replace(run, wake_at=row["wake_at"], active_since=since)
    loaded = Loaded(run=run, service=changes.service, now=row["now"], links={})
    decision = changes.decide(loaded, Start())
    assert decision is not None, "Milepost.start has found the definition"
    if decision.lock == "leave":
        await resources.untake(connection, run)
        decision = replace(decision, lock=None)
    await changes.store(connection, run, decision)
