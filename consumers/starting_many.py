"""Starting the runs of a fan-out's items: many in a few statements where nothing of them is locked, else one alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg
from pydantic import BaseModel

from ..sagas.facts import Start
from ..sagas.model import Decision, Run
from ..sagas.saga import Saga
from ..sagas.words import CHILD_INPUT, clean
from ..schemas.errors import MilepostError
from .batching import ToStore, is_plain
from .changes import Changes
from .joining import watch
from .rows import Loaded, dump
from .starting import NewRun, begun_at, existing, new_run, prepared, start_run
from .store_many import Sql as Many
from .store_many import store_decisions


@dataclass(frozen=True, slots=True)
class Begun:
    """What became of a start.

    Attributes:
        id: The run; None when it could not be started.
        joined: Somebody else had started it.
        state: How it has ended, if it has.
        code: Why it could not be started.
    """

    id: UUID | None = None
    joined: bool = False
    state: str | None = None
    code: str | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """A run that is to be started.

    Attributes:
        value: Its input, or what is wrong with it.
        suffix: Added to the key that the saga gives it.
    """

    value: BaseModel | Begun
    suffix: str = ""


@dataclass(frozen=True, slots=True)
class _Ready:
    """A run that is started with others: as it is inserted, and what is decided about it."""

    new: NewRun
    run: Run
    decision: Decision


async def start_next(
    changes: Changes,
    connection: asyncpg.Connection[Any],
    saga: Saga[Any],
    parent: Run,
    wanted: Sequence[Wanted],
) -> list[Begun]:
    """Start runs in order, as many as can be started in one transaction.

    A transaction that starts several must not wait for locks between them: a run that takes one, or begins with a wait,
    is started alone.

    Returns:
        What became of the first of them; at least of one.
    """
    now = await connection.fetchval(Many.now)
    ready = []
    for one in wanted:
        made = _ready(changes, saga, parent, one, now)
        if made is None:
            break
        ready.append(made)
    if not ready:
        return [await _alone(changes, connection, saga, parent, wanted[0])]
    return await _together(changes, connection, saga, parent, ready)


def _ready(
    changes: Changes, saga: Saga[Any], parent: Run, one: Wanted, now: datetime
) -> _Ready | Begun | None:
    """Return a run that may be started with others, or why it cannot be started at all; None when only alone."""
    if isinstance(one.value, Begun):
        return one.value
    try:
        new = prepared(changes, saga, one.value, parent.tenant, suffix=one.suffix)
    except Exception as error:  # the user's functions of the input may raise anything
        return _refused(error)
    if new.lock is not None or new.rests_on is not None:
        return None
    run = begun_at(new_run(new, saga, parent), saga.definition, now, changes.limits)
    decision = changes.decide(Loaded(run=run, service=changes.service, now=now, links={}), Start())
    assert decision is not None, "the sagas of items are the service's own"
    return _Ready(new, run, decision) if is_plain(decision) else None


def _refused(error: Exception) -> Begun:
    if isinstance(error, MilepostError):
        return Begun(code=error.code, message=clean(str(error)))
    return Begun(code=CHILD_INPUT, message=clean(f"it raised {type(error).__name__}: {error}"))


async def _alone(
    changes: Changes, connection: asyncpg.Connection[Any], saga: Saga[Any], parent: Run, one: Wanted
) -> Begun:
    assert isinstance(one.value, BaseModel)
    own = changes.ids.new()
    try:
        async with connection.transaction():
            ref = await start_run(
                changes,
                connection,
                saga,
                one.value,
                parent.tenant,
                parent=parent,
                run_id=own,
                suffix=one.suffix,
            )
    except MilepostError as error:
        return _refused(error)
    return Begun(id=ref.id, joined=ref.id != own, state=await watch(connection, ref))


async def _together(
    changes: Changes,
    connection: asyncpg.Connection[Any],
    saga: Saga[Any],
    parent: Run,
    made: Sequence[_Ready | Begun],
) -> list[Begun]:
    ready = [one for one in made if isinstance(one, _Ready)]
    begun = await _begin(changes, connection, saga, ready) if ready else set()
    found: list[Begun] = []
    there = {one.new.ref.key: one for one in ready if one.run.id not in begun}
    joined = {key: await _existing(connection, there[key], saga, parent) for key in sorted(there)}
    for one in made:
        if isinstance(one, Begun):
            found.append(one)
        elif one.run.id in begun:
            over = one.decision.run.finished_at is not None
            found.append(Begun(id=one.run.id, state=one.decision.run.state.value if over else None))
        else:
            found.append(joined[one.new.ref.key])
    return found


async def _existing(connection: asyncpg.Connection[Any], one: _Ready, saga: Saga[Any], parent: Run) -> Begun:
    try:
        ref = await existing(connection, one.new, saga, parent)
    except MilepostError as error:
        return _refused(error)
    return Begun(id=ref.id, joined=True, state=await watch(connection, ref))


async def _begin(
    changes: Changes, connection: asyncpg.Connection[Any], saga: Saga[Any], ready: Sequence[_Ready]
) -> set[UUID]:
    """Insert the runs whose keys are free, with what is decided about them; returns which."""
    first, definition = ready[0].run, saga.definition
    rows = await connection.fetch(
        Many.take_run_keys,
        first.tenant,
        saga.name,
        [one.new.ref.key for one in ready],
        [one.run.id for one in ready],
        [one.new.digest for one in ready],
    )
    taken = {row["run_id"] for row in rows}
    free = [one for one in ready if one.run.id in taken]
    if not free:
        return set()
    await connection.execute(
        Many.insert_runs,
        first.tenant,
        changes.service,
        saga.name,
        saga.version,
        definition.shape,
        definition.policy,
        first.correlation_id,
        first.traceparent,
        definition.input_version,
        [one.run.id for one in free],
        [one.run.key for one in free],
        [dump(one.run.input) for one in free],
        [one.run.wake_at for one in free],
        [one.run.deadline_at for one in free],
        [one.run.priority.value for one in free],
    )
    storing = [
        ToStore(one.run, one.decision, changes.messages(one.decision))
        for one in sorted(free, key=lambda one: one.run.id)
    ]
    stored = await store_decisions(connection, storing, changes.ids)
    assert stored.keys() == taken, "nobody else sees these runs yet"
    return taken
