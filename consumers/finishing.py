"""Storing what came of a try: by fence, through broken connections, and together with a transactional step's SQL."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from ..sagas.model import Fact, Run, Step, Succeeded, TryFailed
from ..schemas.errors import UsageError
from ..schemas.states import HELD_STEP_STATES
from ..streams.database import Database
from .calls import Call
from .changes import Change, InlineClaim
from .engine import DATABASE_ERRORS, Engine, will_pass
from .lease import LeaseLost
from .publishing import emitted_rows, publish_in

logger = logging.getLogger("milepost")

T = TypeVar("T")

#: Pauses between tries to store an outcome while the database is away, in seconds.
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 2.0


class Superseded(Exception):
    """The step is no longer this process's: its transaction is rolled back."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """A step row that this process holds."""

    run: Run
    step: Step


async def uncancelled(work: Coroutine[Any, Any, T]) -> T:
    """Await work to its end although this task is cancelled meanwhile: an outcome once known must be stored."""
    task = asyncio.ensure_future(work)
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise
    return task.result()


def held_by(run: Run, inline: InlineClaim, beside: Step) -> Claimed | None:
    """Return another step of the run that this process holds, if the answer to its claim was lost."""
    for step in run.steps:
        if step.worker == inline.worker and step.state in HELD_STEP_STATES and step.name != beside.name:
            return Claimed(run, step)
    return None


async def finish(engine: Engine, call: Call, fact: Fact, inline: InlineClaim) -> Claimed | None:
    """Store what came of a try, until the database has answered.

    An ambiguous commit is settled by reading the row again: under the same fence but no longer held, it was stored.

    Returns:
        The next step when this process claimed it in the same change.
    """
    try:
        rows = emitted_rows(engine, call) if isinstance(fact, Succeeded) else []
    except UsageError as error:
        rows = []
        fact = TryFailed(
            call.step.name, call.step.fence, "unknown", error.code, error.text, iteration=call.step.iteration
        )
    recovered: list[Claimed] = []

    def still_ours(run: Run) -> Fact | None:
        step = run.step(call.step.name, call.step.iteration)
        if step is not None and step.fence == call.step.fence and step.state not in HELD_STEP_STATES:
            following = held_by(run, inline, step)
            recovered.extend([following] if following else [])
            return None
        return fact

    pause = FIRST_PAUSE
    while True:
        try:
            return claimed_in(
                await engine.change(call.run.id, still_ours, emitted=rows, inline=inline), recovered
            )
        except DATABASE_ERRORS as error:
            if not will_pass(error):
                raise
            logger.warning("%s: outcome not stored yet: %s: %s", call.step.name, type(error).__name__, error)
        await asyncio.sleep(pause)
        pause = min(LONGEST_PAUSE, pause * 2)


def claimed_in(change: Change | None, recovered: list[Claimed]) -> Claimed | None:
    """Return the step that a change gave to this process."""
    if change is None:
        return recovered[-1] if recovered else None
    step = change.decision.claimed
    return None if step is None else Claimed(change.decision.run, step)


async def finish_transactional(
    engine: Engine, database: Database, call: Call, inline: InlineClaim
) -> Claimed | None:
    """Run a transactional step: the user's SQL and the checkpoint commit together, or not at all.

    Returns:
        The next step when this process claimed it in the same change.
    """
    changes: list[Change] = []
    try:
        async with database.transaction(publish_in) as tx:
            fn = call.node.fn
            assert fn is not None, "only steps are called"
            value = await call.within_timeout(lambda context: fn(context, tx))
            result = call.encode(value)
            fact = Succeeded(call.step.name, call.step.fence, result, iteration=call.step.iteration)
            rows = emitted_rows(engine, call)
            change = await engine.changes.apply(tx.connection, call.run.id, fact, emitted=rows, inline=inline)
            if change is None or change.decision.answer != "changed":
                raise Superseded
            changes.append(change)
    except Superseded:
        logger.warning("%s of %s: superseded, rolled back", call.step.name, call.run.id)
        return None
    except LeaseLost:
        raise
    except (Exception, asyncio.CancelledError) as error:
        return await uncancelled(finish(engine, call, call.failed(error), inline))
    return claimed_in(changes[-1], [])
