"""Changes of runs on the pool of a process, in transactions of their own."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import asyncpg

from ..outbox.model import OutboxRow
from ..sagas.model import Limits
from ..schemas.artifacts import Artifact
from .changes import Change, Changes, FactOf, InlineClaim
from .grouping import Group
from .sending import unsendable

if TYPE_CHECKING:
    from .app import Milepost

logger = logging.getLogger("milepost")


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
    ) -> Change | None:
        """Apply a fact, together with what others ask for at the same moment; as `Changes.apply`.

        A change that records artifacts goes by itself: it takes a statement more than the others.
        """
        if made:
            async with self.pool.acquire() as proxy:
                connection = cast("asyncpg.Connection[Any]", proxy)
                change = await self.changes.apply(
                    connection, run_id, fact, emitted=emitted, made=made, inline=inline
                )
        else:
            change = await self._group.change(run_id, fact, emitted=emitted, inline=inline)
        tell(change)
        return change


def tell(change: Change | None) -> None:
    """Say in the log what somebody should know of; history has it all."""
    if change is None or change.decision.answer != "changed":
        return
    run = change.decision.run
    for entry in change.decision.history:
        if entry.event in _TOLD:
            words = entry.data.get("code") or entry.data.get("cause") or ""
            logger.error("%s/%s %s: %s %s", run.saga, run.key, entry.step or "run", entry.event, words)


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
    )
