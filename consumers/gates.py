"""The gate before a claim: a step that its rate limits do not let begin yet goes back, and its slot is free at once."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING
from uuid import UUID

from ..sagas.definition import Definition
from ..sagas.definition import Node as Compiled
from ..sagas.facts import Fact, Limited, TryFailed
from ..sagas.limiting import Limit
from ..sagas.model import Run, Step
from ..schemas.errors import DefinitionError
from ..schemas.messages import WorkMessage
from ..schemas.states import Priority, StepState
from .engine import DATABASE_ERRORS, Engine
from .limits import Limiter, Sql, Wish

if TYPE_CHECKING:
    from .app import Milepost

logger = logging.getLogger("milepost")

_WAITING = frozenset({StepState.PENDING, StepState.UNKNOWN, StepState.COMPENSATION_PENDING})


def check_limits(service: Milepost) -> None:
    """Refuse names of limits and queues that the service does not have.

    Raises:
        DefinitionError: MP126.
    """
    known = ", ".join(sorted(service.limits)) or "none"
    for definition in service.definitions:
        for node in definition.nodes:
            for name in node.limits:
                if name not in service.limits:
                    raise DefinitionError(
                        "MP126",
                        f"{definition.title}, step {node.name}: limits={name!r} is no limit of service {service.name}. "
                        f"Add service.limit({name!r}, calls=..., per=...). Known: {known}.",
                    )
    for limit in service.limits.values():
        if limit.queue is not None and limit.queue not in service.definitions.queues:
            queues = ", ".join(service.definitions.queues) or "none"
            raise DefinitionError(
                "MP126", f"limit({limit.name!r}): no step uses queue {limit.queue!r}. Known: {queues}."
            )


class Gate:
    """Asks the limits of steps for one process.

    Args:
        service: Its limits and definitions.
        engine: Puts off what may not begin.

    Raises:
        DefinitionError: MP126 as `check_limits`.
    """

    def __init__(self, service: Milepost, engine: Engine) -> None:
        check_limits(service)
        self._limits = service.limits
        self._engine = engine
        self._limiter = Limiter(engine.pool, service.name)

    async def let_through(self, message: WorkMessage, priority: Priority) -> bool:
        """Return whether a step may be claimed now; one that may not is put off.

        Raises:
            Exception: Of DATABASE_ERRORS, when the database does not answer.
        """
        definition = self._engine.changes.definitions.get(message.saga, message.definition)
        limits = self._of(definition, message.step)
        if not limits:
            return True
        row = await self._engine.pool.fetchrow(Sql.waiting_step, message.run, message.step, message.iteration)
        if row is None or row["state"] not in _WAITING:
            return True
        if row["appointed"] is False:
            return False  # it was put off by an earlier word of it, and comes again when its time has come
        until = await self._limiter.ask(Wish(limits, priority, bool(row["appointed"])))
        if until is None:
            return True
        names = ", ".join(limit.name for limit in limits)
        await self._engine.change(message.run, Limited(message.step, until, names, message.iteration))
        return False

    def limited(self, run: Run, step: Step) -> bool:
        """Whether a step has to ask first, so that no worker goes on with it by the way."""
        return bool(self._of(self._engine.changes.definitions.get(run.saga, run.definition), step.name))

    async def heard(self, run: UUID, definition: Definition, step: Step, fact: Fact) -> None:
        """Close the limits of a step for as long as the other side asked for in its answer."""
        if not isinstance(fact, TryFailed) or fact.retry_after is None:
            return
        names = [limit.name for limit in self._of(definition, step.name) if limit.queue is None]
        if not names:
            return
        try:
            await self._limiter.close(names, fact.retry_after)
        except DATABASE_ERRORS as error:
            logger.warning("limit %s not closed for run %s: %s", ", ".join(names), run, error)

    def _of(self, definition: Definition | None, step: str) -> list[Limit]:
        node = None if definition is None else definition.node(step) or definition.undone_by(step)
        if node is None or not self._limits:
            return []
        return [limit for limit in self._limits.values() if _counts(limit, node)]


def _counts(limit: Limit, node: Compiled) -> bool:
    return limit.name in node.limits or (limit.queue is not None and limit.queue == node.queue)
