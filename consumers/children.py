"""Looking after children: started, joined, told to stop, and asked how they ended.

Each look reads what is there and does what is missing, so it may be repeated, and two may happen at once. What was
found is written to milepost.child_run; then the parent decides about it, in a transaction of its own: one transaction
changes one run.
"""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

import asyncpg

from ..sagas import children
from ..sagas.facts import Act, ChildSeen
from ..sagas.model import Run, Step
from ..sagas.words import CANCELLED_NO_UNDO, CHILD_NOT_STARTED, CHILD_STOPPING, clean
from ..schemas.errors import MilepostError
from ..schemas.messages import ChildEndedMessage, ChildMessage, TimerMessage
from ..schemas.states import StepKind, StepState
from ..streams.queries import Queries
from .changes import Changes
from .engine import Engine
from .handing import hand_over
from .starting import start_run
from .store import load_run


class Sql(Queries, file="children.sql"):
    """Queries of this module."""

    take_child: str
    find_child: str
    ended_badly: str
    child_started: str
    child_refused: str
    watch: str
    outcome: str
    child_ended: str
    parents: str


async def look_after(engine: Engine, message: ChildMessage) -> None:
    """Do for the child of a row what is still to be done, and tell the row when the child is over."""
    async with engine.pool.acquire() as proxy:
        connection = cast("asyncpg.Connection[Any]", proxy)
        async with connection.transaction():
            loaded = await load_run(connection, message.run)
            step = None if loaded is None else loaded.run.step(message.step, message.iteration)
            if loaded is None or step is None or not _is_open(step):
                return
            known = engine.changes.definitions.of(loaded.run) is not None
            link = await _link(engine.changes, connection, loaded.run, step) if known else None
    if link is None:
        await hand_over(
            engine,
            TimerMessage(
                run=message.run, step=step.name, iteration=step.iteration, generation=step.generation
            ),
        )
    elif link["over"]:
        await engine.change(message.run, ChildSeen(message.step, message.iteration))
    elif step.code == CHILD_STOPPING:
        await _stop(engine, loaded.run, link["child_id"])


async def ended(engine: Engine, message: ChildEndedMessage) -> None:
    """Tell the rows that wait for a run that it is over."""
    await engine.pool.execute(Sql.child_ended, message.run)
    for row in await engine.pool.fetch(Sql.parents, message.run):
        await look_after(
            engine, ChildMessage(run=row["run_id"], step=row["step"], iteration=row["iteration"])
        )


def _is_open(step: Step) -> bool:
    return step.kind is StepKind.CHILD and step.state is StepState.WAITING


async def _link(
    changes: Changes, connection: asyncpg.Connection[Any], run: Run, step: Step
) -> asyncpg.Record | None:
    """Return what the row's child is; whoever comes first makes it."""
    place = (run.id, step.name, step.iteration, step.attempt)
    unwanted = step.code == CHILD_STOPPING
    if await connection.fetchval(Sql.take_child, *place):
        if unwanted:
            await connection.execute(Sql.child_refused, *place, CHILD_NOT_STARTED, None)
        else:
            await _start(changes, connection, run, step)
    link = await connection.fetchrow(Sql.find_child, *place)
    assert link is not None
    if unwanted and link["joined"] and not link["over"]:
        # It is somebody else's run, and goes on.
        await connection.execute(Sql.child_refused, *place, CHILD_NOT_STARTED, None)
        link = await connection.fetchrow(Sql.find_child, *place)
    return link


async def _start(changes: Changes, connection: asyncpg.Connection[Any], run: Run, step: Step) -> None:
    place = (run.id, step.name, step.iteration, step.attempt)
    definition = changes.definitions.of(run)
    node = None if definition is None else definition.node(step.name)
    assert definition is not None and node is not None and node.child is not None
    value, problem = children.made(definition, run, node)
    if value is None:
        await connection.execute(Sql.child_refused, *place, "CHILD_INPUT", problem)
        return
    before = await connection.fetchval(Sql.ended_badly, *place)
    own = changes.ids.new()
    try:
        async with connection.transaction():
            ref = await start_run(
                changes,
                connection,
                node.child.saga,
                value,
                run.tenant,
                parent=run,
                run_id=own,
                suffix=f"~{before + 1}" if before else "",
            )
    except MilepostError as error:
        await connection.execute(Sql.child_refused, *place, error.code, clean(str(error)))
        return
    await connection.execute(Sql.watch, ref.id)
    state = await connection.fetchval(Sql.outcome, ref.tenant, ref.saga, ref.key)
    await connection.execute(Sql.child_started, *place, ref.id, ref.key, ref.id != own, state)


async def _stop(engine: Engine, run: Run, child: UUID) -> None:
    """Cancel a child, with undo where its parent is undone; one that is stopping already just goes on."""
    undo = not (run.no_undo or run.cause == CANCELLED_NO_UNDO)
    name = f"run {run.saga}/{run.key}"
    await engine.change(
        child, Act("cancel", by=name, reason="its parent does not need it any more", undo=undo)
    )
