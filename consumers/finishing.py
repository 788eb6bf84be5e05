"""Storing what came of a try: by fence, through broken connections, and together with a transactional step's SQL."""

from __future__ import annotations

import asyncio
import logging

from ..sagas.facts import Fact, Succeeded, TryFailed
from ..sagas.model import Run
from ..schemas.errors import UsageError
from ..schemas.states import HELD_STEP_STATES
from ..schemas.transaction import Cause
from ..streams.database import Database, require_same_transaction
from .attempts import Claimed
from .calls import Call
from .changes import Change, InlineClaim
from .engine import DATABASE_ERRORS, Engine, tell, uncancelled, will_pass
from .known import Known
from .publishing import emitted_rows, publish_in
from .slots import Slots

logger = logging.getLogger("milepost")

#: Pauses between tries to store an outcome while the database is away, in seconds.
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 2.0
#: Longest wait of a transactional step for its turn on the database, in seconds.
ROOM_WITHIN = 10.0


class Superseded(Exception):
    """The step is no longer this process's: its transaction is rolled back."""


async def finish(
    engine: Engine, call: Call, fact: Fact, inline: InlineClaim, known: Known | None = None
) -> Claimed | None:
    """Store what came of a try, until the database has answered, although this task is cancelled meanwhile.

    An ambiguous commit is settled by reading the row again: under the same fence but no longer held, it was stored.

    Args:
        known: The run as the claim of the step has left it.

    Returns:
        The next step when this process claimed it in the same change.
    """
    try:
        rows = emitted_rows(engine, call) if isinstance(fact, Succeeded) else []
    except UsageError as error:
        return await finish(engine, call, _not_storable(call, error.code, error.text), inline)
    attempt = inline.attempt

    def still_ours(run: Run) -> Fact | None:
        step = run.step(call.step.name, call.step.iteration)
        if step is not None and step.fence == call.step.fence:
            if step.state in HELD_STEP_STATES:
                return fact
            attempt.recover(run, *run.steps)
            return None
        return None if attempt.recover(run, *run.steps) else fact

    pause = FIRST_PAUSE
    while True:
        try:
            change = await engine.change(
                call.run.id,
                still_ours,
                emitted=rows,
                made=call.recorded(fact),
                inline=inline,
                known=known,
                to_the_end=True,
            )
            return attempt.answered(change)
        except DATABASE_ERRORS as error:
            attempt.unanswered()
            known = None
            if not will_pass(error):
                if isinstance(fact, TryFailed):
                    raise
                return await finish(engine, call, _not_storable(call, "NOT_STORABLE", str(error)), inline)
            logger.warning("%s: outcome not stored yet: %s: %s", call.step.name, type(error).__name__, error)
        await uncancelled(asyncio.sleep(pause))
        pause = min(LONGEST_PAUSE, pause * 2)


def _not_storable(call: Call, code: str, message: str) -> TryFailed:
    """The call took effect, but what it returned or emitted cannot be stored: its outcome is unknown to the run."""
    step, spent = call.step, call.purse.spent
    return TryFailed(step.name, step.fence, "unknown", code, message, iteration=step.iteration, spent=spent)


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
        return await finish(engine, call, call.unbegun(), inline)
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
            tx._run = Cause(call.run.tenant, call.run.correlation_id, "")
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
        inline.attempt.unanswered()
        return await finish(engine, call, call.failed(error), inline)
    tell(changes[-1])
    return inline.attempt.answered(changes[-1])
