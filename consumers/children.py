"""Looking after children: started, joined, told to stop, and asked how they ended.

Each look reads what is there and does what is missing, so it may be repeated, and two may happen at once. What was
found is written to milepost.child_run; then the parent decides about it, in a transaction of its own: one transaction
changes one run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast
from uuid import UUID

import asyncpg

from ..sagas import children
from ..sagas.facts import ChildSeen
from ..sagas.model import Run, Step
from ..sagas.words import CHILD_NOT_STARTED, CHILD_STOPPING, clean
from ..schemas.errors import MilepostError
from ..schemas.messages import ChildMessage, TimerMessage
from ..schemas.states import StepKind, StepState
from .changes import Changes
from .engine import Engine, raise_passing
from .fanout import Place, look_after_items
from .fanout import Sql as Fanout
from .handing import hand_over
from .joining import Sql, stop, watch
from .starting import start_run
from .store import load_run


async def look_after(engine: Engine, message: ChildMessage) -> None:
    """Do for the child of a row, or its items, what is still to be done, and tell the row when that is over."""
    async with engine.pool.acquire() as proxy:
        connection = cast("asyncpg.Connection[Any]", proxy)
        async with connection.transaction():
            loaded = await load_run(connection, message.run)
            step = None if loaded is None else loaded.run.step(message.step, message.iteration)
            if loaded is None or step is None or not _is_open(step):
                return
            changes = engine.changes
            known = loaded.service == changes.service and changes.definitions.of(loaded.run) is not None
            mine = known and step.kind is StepKind.CHILD
            link = await _link(changes, connection, loaded.run, step) if mine else None
    if step.kind is StepKind.EACH:
        await look_after_items(engine, Place.of(message.run, step))
    elif link is None:
        await hand_over(
            engine,
            TimerMessage(
                run=message.run, step=step.name, iteration=step.iteration, generation=step.generation
            ),
        )
    elif link["over"]:
        await engine.change(message.run, ChildSeen(message.step, message.iteration))
    elif step.code == CHILD_STOPPING:
        await stop(engine, loaded.run, link["child_id"])


async def ended(engine: Engine, runs: Sequence[UUID]) -> None:
    """Tell the rows that wait for these runs that they are over; the items of one list are counted together."""
    await engine.pool.execute(Sql.child_ended, runs)
    children = await engine.pool.fetch(Sql.parents, runs)
    lists = await engine.pool.fetch(Fanout.lists_of, runs)
    acts = [look_after(engine, ChildMessage(**_place(row))) for row in children]
    acts += [look_after_items(engine, Place(**_place(row)), runs) for row in lists]
    results = await asyncio.gather(*acts, return_exceptions=True)
    raise_passing(
        (f"the end of a child of run {row['run_id']}", result)
        for row, result in zip([*children, *lists], results, strict=True)
    )


def _place(row: asyncpg.Record) -> dict[str, Any]:
    return {"run": row["run_id"], "step": row["step"], "iteration": row["iteration"]}


def _is_open(step: Step) -> bool:
    return step.kind in {StepKind.CHILD, StepKind.EACH} and step.state is StepState.WAITING


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
    state = await watch(connection, ref)
    await connection.execute(Sql.child_started, *place, ref.id, ref.key, ref.id != own, state)
