"""Changes of runs on the pool of a process, in transactions of their own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, cast
from uuid import UUID

import asyncpg

from ..outbox.model import OutboxRow
from ..sagas.model import Limits, Run
from ..sagas.words import CANCELLED
from ..schemas.artifacts import Artifact
from .changes import Change, Changes, FactOf, InlineClaim
from .grouping import Group
from .known import Known
from .metering import count_change
from .sending import unsendable

if TYPE_CHECKING:
    from .app import Milepost

logger = logging.getLogger("milepost")

T = TypeVar("T")


class Stopping(Exception):
    """This process stops: the message is left for another one."""


#: What a database raises that is away, restarting, switched over or refusing; asyncpg says InternalClientError on a
#: connection that was ended while it was idle and has not seen its end yet.
DATABASE_ERRORS = (
    OSError,
    TimeoutError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)
#: History events that are errors in the log too.
_TOLD = frozenset(
    {"step.attempts_used_up", "step.manual_required", "run.failed", "run.compensating", "incident.candidate"}
)
#: SQLSTATE classes that say nothing about what was written: connection, transaction state (a standby is read-only),
#: rollback by serialization or deadlock, resources, object in use, operator intervention, system and internal errors.
#: https://www.postgresql.org/docs/current/errcodes-appendix.html
_PASSING = frozenset({"08", "25", "40", "53", "55", "57", "58", "XX"})


def will_pass(error: BaseException) -> bool:
    """Tell whether one of DATABASE_ERRORS is the database's own trouble, so that the same write may succeed later."""
    state = getattr(error, "sqlstate", None)
    return not isinstance(state, str) or state[:2] in _PASSING


def raise_passing(results: Iterable[tuple[str, object]]) -> None:
    """Raise the first error that will pass, so that the messages are handled again; put the others into the log.

    One run that cannot be changed must not keep the others of its partition waiting: its message is given up, and the
    waker announces the run again at its `wake_at`.

    Args:
        results: What a message was about, and what came of it.

    Raises:
        BaseException: The database's own trouble, or what ends this process.
    """
    passing: list[BaseException] = []
    for what, result in results:
        if not isinstance(result, BaseException):
            continue
        given_up = isinstance(result, Exception) and not (
            isinstance(result, DATABASE_ERRORS) and will_pass(result)
        )
        if given_up and not isinstance(result, Stopping):
            logger.error(
                "MP432 %s could not be acted on, it is announced again: %s: %s",
                what,
                type(result).__name__,
                result,
                exc_info=result,
            )
        else:
            passing.append(result)
    if passing:
        raise passing[0]


@dataclass(frozen=True)
class Engine:
    """`Changes` on a pool.

    Args:
        changes: Decides and stores.
        pool: Where runs live.
    """

    changes: Changes
    pool: asyncpg.Pool[Any]
    _group: Group = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_group", Group(self.changes, self.pool))

    async def change(
        self,
        run_id: UUID,
        fact: FactOf,
        *,
        emitted: Sequence[OutboxRow] = (),
        made: Sequence[Artifact] = (),
        inline: InlineClaim | None = None,
        known: Known | None = None,
        to_the_end: bool = False,
    ) -> Change | None:
        """Apply a fact, together with what others ask for at the same moment; as `Changes.apply`.

        A change that records artifacts goes by itself: it takes a statement more than the others.

        Args:
            known: The run as it was stored last, which then need not be read.
            to_the_end: Whether the answer is awaited although this task is cancelled meanwhile.
        """
        asked: Awaitable[Change | None]
        if made:
            asked = self._recorded(run_id, fact, emitted, made, inline)
        else:
            asked = self._group.change(run_id, fact, emitted=emitted, inline=inline, known=known)
        change = await (uncancelled(asked) if to_the_end else asked)
        tell(change)
        return change

    async def _recorded(
        self,
        run_id: UUID,
        fact: FactOf,
        emitted: Sequence[OutboxRow],
        made: Sequence[Artifact],
        inline: InlineClaim | None,
    ) -> Change | None:
        async with self.pool.acquire() as proxy:
            connection = cast("asyncpg.Connection[Any]", proxy)
            return await self.changes.apply(
                connection, run_id, fact, emitted=emitted, made=made, inline=inline
            )


async def uncancelled(work: Awaitable[T]) -> T:
    """Await work to its end although this task is cancelled meanwhile: an outcome once known must be stored."""
    future = asyncio.ensure_future(work)
    while not future.done():
        try:
            await asyncio.shield(future)
        except asyncio.CancelledError:
            if future.cancelled():
                raise
    return future.result()


def tell(change: Change | None) -> None:
    """Say in the log what somebody should know of, and count it; history has it all."""
    if change is None or change.decision.answer != "changed":
        return
    count_change(change.before.service, change.before.run, change.decision)
    run = change.decision.run
    for entry in change.decision.history:
        if entry.event in _TOLD:
            words = entry.data.get("code") or entry.data.get("cause") or ""
            level = _level(run, entry.event, str(words))
            logger.log(level, "%s/%s %s: %s %s", run.saga, run.key, entry.step or "run", entry.event, words)


def _level(run: Run, event: str, words: str) -> int:
    """Say how loud it is: what a person wanted is no error, and of a run that is waited for its parent judges."""
    if event in {"run.compensating", "run.failed"}:
        if words == CANCELLED:
            return logging.INFO
        if run.watched:
            return logging.WARNING
    return logging.ERROR


def changes_of(service: Milepost) -> Changes:
    """Return what decides for a service, with the times that its settings give."""
    settings = service.settings
    return Changes(
        service=service.name,
        definitions=service.definitions,
        clock=service.clock,
        ids=service.ids,
        randomness=service.randomness,
        limits=Limits(nudge=settings.nudge, slack=settings.lease, unsendable=unsendable),
        own_session=settings.pooler == "none",
    )
