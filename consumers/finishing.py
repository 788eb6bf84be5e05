"""Storing what came of a try: by fence, through broken connections, and together with a transactional step's SQL."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from ..sagas.facts import Fact, Succeeded, TryFailed
from ..sagas.model import Run, Step
from ..schemas.errors import UsageError
from ..schemas.states import HELD_STEP_STATES
from ..streams.database import Database, require_same_transaction
from .calls import Call
from .changes import Change, InlineClaim
from .engine import DATABASE_ERRORS, Engine, will_pass
from .publishing import emitted_rows, publish_in
from .slots import Slots

logger = logging.getLogger("milepost")

T = TypeVar("T")

#: Pauses between tries to store an outcome while the database is away, in seconds.
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 2.0
#: Longest wait of a transactional step for its turn on the database, in seconds.
ROOM_WITHIN = 10.0


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


def unanswered(run: Run, inline: InlineClaim, beside: Step) -> Claimed | None:
    """Return the step of the run that this process has claimed inline without seeing the answer, if there is one."""
    if not inline.alone():
        return None
    for step in run.steps:
        same = (step.name, step.iteration) == (beside.name, beside.iteration)
        other = not same or step.fence > beside.fence
        if other and step.worker == inline.worker and step.state in HELD_STEP_STATES:
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
        return await finish(engine, call, _not_storable(call, error.code, error.text), inline)
    recovered: list[Claimed] = []

    def still_ours(run: Run) -> Fact | None:
        step = run.step(call.step.name, call.step.iteration)
        ours = step is not None and step.fence == call.step.fence
        stored = ours and step is not None and step.state not in HELD_STEP_STATES
        # A row beside it that this process seems to hold, while this one is not stored, is another branch's: the answer
        # to its claim was lost, and that claim is made again.
        following = unanswered(run, inline, call.step) if stored or not ours else None
        recovered.extend([following] if following else [])
        return None if following or stored else fact

    pause = FIRST_PAUSE
    while True:
        try:
            change = await engine.change(
                call.run.id, still_ours, emitted=rows, made=call.recorded(fact), inline=inline
            )
            return claimed_in(change, recovered)
        except DATABASE_ERRORS as error:
            if not will_pass(error):
                if isinstance(fact, TryFailed):
                    raise
                return await finish(engine, call, _not_storable(call, "NOT_STORABLE", str(error)), inline)
            logger.warning("%s: outcome not stored yet: %s: %s", call.step.name, type(error).__name__, error)
        await asyncio.sleep(pause)
        pause = min(LONGEST_PAUSE, pause * 2)


def _not_storable(call: Call, code: str, message: str) -> TryFailed:
    """The call took effect, but what it returned or emitted cannot be stored: its outcome is unknown to the run."""
    step, spent = call.step, call.purse.spent
    return TryFailed(step.name, step.fence, "unknown", code, message, iteration=step.iteration, spent=spent)


def claimed_in(change: Change | None, recovered: list[Claimed]) -> Claimed | None:
    """Return the step that a change gave to this process."""
    if change is None:
        return recovered[-1] if recovered else None
    step = change.decision.claimed
    return None if step is None else Claimed(change.decision.run, step)


async def finish_transactional(
    engine: Engine, database: Database, call: Call, inline: InlineClaim, room: Slots
) -> Claimed | None:
    """Run a transactional step: the user's SQL and the checkpoint commit together, or not at all.

    Args:
        room: How many may hold a connection at once; a step that finds none in time is handed back.

    Returns:
        The next step when this process claimed it in the same change.
    """
    try:
        # Well inside the hard timeout, which is the attempt's and this slack.
        async with asyncio.timeout(min(ROOM_WITHIN, engine.changes.limits.slack.total_seconds() / 2)):
            place = await room.acquire(call.run.priority)
    except (TimeoutError, asyncio.CancelledError):
        return await uncancelled(finish(engine, call, call.unbegun(), inline))
    try:
        return await _in_transaction(engine, database, call, inline)
    finally:
        room.release(place)


async def _in_transaction(
    engine: Engine, database: Database, call: Call, inline: InlineClaim
) -> Claimed | None:
    changes: list[Change] = []
    try:
        async with database.transaction(publish_in) as tx:
            fn = call.node.fn
            assert fn is not None, "only steps are called"
            value = await call.within_timeout(lambda context: fn(context, tx))
            await require_same_transaction(tx)
            result = call.encode(value)
            fact = call.succeeded(result)
            rows = emitted_rows(engine, call)
            change = await engine.changes.apply(
                tx.connection, call.run.id, fact, emitted=rows, made=call.recorded(fact), inline=inline
            )
            if change is None or change.decision.answer != "changed":
                raise Superseded
            changes.append(change)
    except Superseded:
        logger.warning("%s of %s: superseded, rolled back", call.step.name, call.run.id)
        return None
    except (Exception, asyncio.CancelledError) as error:
        return await uncancelled(finish(engine, call, call.failed(error), inline))
    return claimed_in(changes[-1], [])
