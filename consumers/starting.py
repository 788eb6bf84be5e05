"""Starting a run: idempotent by (tenant, saga, key), in the caller's transaction."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime
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
from ..sagas.model import Json, Limits, Run
from ..sagas.moving import same_intent
from ..sagas.saga import Saga
from ..schemas.errors import StateError, UsageError
from ..schemas.states import Priority, RunState
from ..schemas.texts import INDEXED, too_long_to_index
from ..schemas.transaction import AsyncpgTx, Transaction
from ..streams.database import check_level, raw_connection
from ..streams.tracing import current_traceparent, span
from . import fingerprints, resources
from .changes import Changes
from .rows import Loaded
from .store import Sql
from .store_many import Sql as Many


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
    new = prepared(changes, saga, value, tenant, reuse=reuse, suffix=suffix, run_id=run_id)
    ref = new.ref
    begun = await connection.fetchrow(Sql.take_run_key, tenant, saga.name, ref.key, ref.id, new.digest)
    assert begun is not None, "it selects a row"
    check_level(begun["level"], "start()")
    now = begun["now"]
    if now is None:
        return await existing(connection, new, saga, parent)
    if new.rests_on is not None:
        earlier = await fingerprints.claim(connection, ref, new.rests_on, reuse=reuse)
        if earlier is not None:
            return earlier
    with span(f"start {saga.name}", attributes={"milepost.run": str(ref.id), "milepost.key": ref.key}):
        run = new_run(new, saga, parent, tx)
        if new.lock is not None:
            reject = saga.definition.if_locked == "reject"
            try:
                holds = await resources.take(connection, ref, new.lock, reject=reject)
            except StateError:
                await fingerprints.forget(connection, ref)
                raise
            run = replace(run, resource=new.lock, holds=holds)
        if new.lock is not None or new.rests_on is not None:
            now = await connection.fetchval(Many.now)  # another start may have been waited for
        await _insert(changes, connection, run, saga.definition, now)
    return ref


@dataclass(frozen=True, slots=True)
class NewRun:
    """What a start has to know of a run, from its input alone.

    Attributes:
        encoded: The input as JSON, and `digest` the hash of that.
        lock: What the run has for itself.
        rests_on: Its fingerprint.
    """

    ref: RunRef
    encoded: Json
    digest: bytes
    deadline_at: datetime | None
    priority: Priority
    lock: str | None
    rests_on: Fingerprint | None


def prepared(
    changes: Changes,
    saga: Saga[Any],
    value: BaseModel,
    tenant: str,
    *,
    reuse: bool = False,
    suffix: str = "",
    run_id: UUID | None = None,
) -> NewRun:
    """Ask the definition all that it says of an input; see `start_run` for the arguments."""
    definition = saga.definition
    problem = text_problem(tenant, longest=200) if tenant else ""
    if problem:
        raise UsageError(
            "MP331", f"start(): tenant {tenant!r} {problem}. Pass a short, stable text, or '' for none."
        )
    encoded, digest = definition.encode_input(value)
    key = definition.key_of(value) + suffix
    if too_long_to_index(tenant, saga.name, key):
        raise UsageError(
            "MP343",
            f"{definition.title}: key= returned {key[:50]!r}..., which with the saga's name and the tenant takes "
            f"more than {INDEXED} bytes. Return a short, stable text.",
        )
    return NewRun(
        ref=RunRef(id=run_id or changes.ids.new(), tenant=tenant, saga=saga.name, key=key),
        encoded=encoded,
        digest=digest,
        deadline_at=timing.deadline_of(definition, value),
        priority=priorities.of_input(definition, value),
        lock=lock_of(definition, value, tenant),
        rests_on=_rests_on(definition, value, reuse=reuse),
    )


def _rests_on(definition: Definition, value: BaseModel, *, reuse: bool) -> Fingerprint | None:
    found = of_input(definition, value)
    if reuse and found is None:
        raise UsageError(
            "MP368",
            f"start(reuse=True): {definition.title} declares no fingerprint=, so nobody knows which runs are equal. "
            "Declare one, or start without reuse.",
        )
    return found


async def existing(
    connection: asyncpg.Connection[Any], new: NewRun, saga: Saga[Any], parent: Run | None = None
) -> RunRef:
    """Return the run that has the key already.

    Args:
        parent: The run that is going to wait for it.

    Raises:
        StateError: MP302 when it has another input, MP397 when it waits for the parent.
    """
    ref = new.ref
    row = await connection.fetchrow(Sql.find_run_key, ref.tenant, ref.saga, ref.key)
    assert row is not None, "a run key is never deleted while its conflict is seen"
    stored = None if row["input"] is None else json.loads(row["input"])
    if row["input_hash"] == new.digest or _same(saga, row, stored, new.digest):
        found = RunRef(id=row["run_id"], tenant=ref.tenant, saga=ref.saga, key=ref.key)
        if parent is not None and row["outcome"] is None:
            await _require_no_circle(connection, parent, found)
        return found
    changed = _changed(stored, new.encoded)
    verb = "already runs" if row["outcome"] is None else f"already ran ({row['outcome']})"
    raise StateError(
        "MP302",
        f"start(): {ref} {verb} with a different input (changed: {changed}). The same input returns the existing run; "
        f"a new intent needs a new key. Run: {row['run_id']}",
    )


async def _require_no_circle(connection: asyncpg.Connection[Any], parent: Run, child: RunRef) -> None:
    if await connection.fetchval(Sql.waits_for, parent.id, child.id):
        raise StateError(
            "MP397",
            f"run {parent.saga}/{parent.key} would wait for {child}, which is itself or waits for it, so that neither "
            "would ever end. Give the child's input another key.",
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


def new_run(new: NewRun, saga: Saga[Any], parent: Run | None, tx: AsyncpgTx | None = None) -> Run:
    """Return the run as it is before anything of it is decided."""
    ref = new.ref
    cause = tx._cause if isinstance(tx, Transaction) else None
    correlation = "" if cause is None else cause.correlation_id
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
        input=new.encoded,
        state=RunState.PENDING,
        correlation_id=correlation or str(ref.id),
        traceparent=traceparent,
        watched=parent is not None,
        deadline_at=new.deadline_at,
        priority=new.priority,
    )


def begun_at(run: Run, definition: Definition, now: datetime, limits: Limits) -> Run:
    """Return a run that begins now: it is looked at when its time is over, or after a while if it says nothing."""
    active = definition.active_timeout
    looks = [now + limits.sweep, run.deadline_at, None if active is None else now + active]
    return replace(
        run, wake_at=min(at for at in looks if at is not None), active_since=None if active is None else now
    )


async def _insert(
    changes: Changes, connection: asyncpg.Connection[Any], run: Run, definition: Definition, now: datetime
) -> None:
    run = begun_at(run, definition, now, changes.limits)
    decision = changes.decide(Loaded(run=run, service=changes.service, now=now, links={}), Start())
    assert decision is not None, "Milepost.start has found the definition"
    if decision.lock == "leave":
        await resources.untake(connection, run)
        decision = replace(decision, lock=None)
    await changes.store(connection, run, decision, begins=True)
