"""Calling what a service inspects, and beginning the runs that repair what differs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from typing import TYPE_CHECKING, Any, TypeVar

import asyncpg

from ..recovery.executor import Executor, Sql
from ..recovery.inspecting import Compared, Inspection
from ..recovery.model import Action, Observation, Reconciled
from ..recovery.observers import with_past
from ..schemas.errors import StateError, UsageError
from .clients import ClientFailed, Clients
from .engine import DATABASE_ERRORS

if TYPE_CHECKING:
    from .app import Milepost

logger = logging.getLogger("milepost")

T = TypeVar("T")
#: Most things that one look of an inspection may compare.
MOST = 10_000


class Inspecting:
    """Looks at what a service inspects.

    Args:
        connection: Not in a transaction.
        executor: Carries plans out, repairs through runs of this service.
        client: Returns the open client of a class.
        mine: Whether what was found so may be acted on; everything by default.

    Attributes:
        failed: Names of the inspections that could not look, which says nothing about what they look at.
    """

    def __init__(
        self,
        service: Milepost,
        connection: asyncpg.Connection[Any],
        executor: Executor,
        client: Callable[[type[Any]], Any],
        mine: Callable[[Observation], bool] = lambda _: True,
    ) -> None:
        self._service = service
        self._connection = connection
        self._executor = executor
        self._client = client
        self._mine = mine
        self.failed: list[str] = []

    def use(self, kind: type[T], /) -> T:
        """Return the client that the service provides for a class.

        Raises:
            UsageError: MP330 when none is provided.
        """
        found: T = self._client(kind)
        return found

    async def due(self) -> list[Reconciled]:
        """Look at everything that is due, and that no other process has taken."""
        found: list[Reconciled] = []
        await self._connection.execute(Sql.make_reconciler, self._service.name)
        for inspection in self._service.inspections.values():
            taken = (self._service.name, inspection.name, inspection.every)
            if await self._connection.fetchval(Sql.take_inspection, *taken):
                found += await self.look(inspection)
        return found

    async def look(self, inspection: Inspection[Any]) -> list[Reconciled]:
        """Call an inspection and carry out what follows; what it raises is told, and nothing follows from it."""
        compared: list[Compared[Any]] = []
        try:
            async with asyncio.timeout(inspection.within.total_seconds()):
                async with aclosing(inspection.fn(self)) as looking:  # type: ignore[type-var]
                    async for one in looking:
                        compared.append(one)
                        if len(compared) >= MOST:
                            raise ValueError(f"it compares more than {MOST} things")
            now = await self._connection.fetchval(Sql.now)
            seen = [(one, inspection.observed(one, service=self._service.name, now=now)) for one in compared]
        except Exception as error:
            logger.error("MP652 inspect(%r) failed: %s: %s", inspection.name, type(error).__name__, error)
            self.failed.append(inspection.name)
            return []
        return await self._act(inspection, [pair for pair in seen if pair[0].differs and self._mine(pair[1])])

    async def _act(
        self, inspection: Inspection[Any], seen: Sequence[tuple[Compared[Any], Observation]]
    ) -> list[Reconciled]:
        known = await with_past(self._connection, [one for _, one in seen])
        found: list[Reconciled] = []
        for (compared, _), one in zip(seen, known, strict=True):
            plan = inspection.plan(compared, one)
            executor = self._executor.repairing(_Starts(self._service, inspection, compared))
            try:
                alone = inspection.alone(plan)
                found.append(await executor.decide(self._connection, one, plan, alone=alone))
            except DATABASE_ERRORS:
                raise
            except (
                Exception
            ) as error:  # what the service's own code says about one thing keeps nobody from the others
                words = (inspection.name, one.label, type(error).__name__, error)
                logger.error("MP652 inspect(%r): the repair of %s cannot begin: %s: %s", *words)
        return found


async def inspect_all(
    service: Milepost,
    connection: asyncpg.Connection[Any],
    executor: Executor,
    mine: Callable[[Observation], bool] = lambda _: True,
) -> tuple[list[Reconciled], list[str]]:
    """Look at everything that a service inspects because a person asks, due or not, with clients opened for it.

    Args:
        connection: Not in a transaction.
        mine: Whether what was found so may be acted on.

    Returns:
        What differs and what became of it, and the names of the inspections that could not look.
    """
    found: list[Reconciled] = []
    names = list(service.inspections)
    if not names:
        return [], []
    async with AsyncExitStack() as stack:
        clients = Clients(service.factories)
        try:
            await clients.open(stack)
        except ClientFailed as error:
            logger.error("MP652 inspect(%r) failed: client %s", ", ".join(names), error)
            return [], names
        looking = Inspecting(service, connection, executor, clients.get, mine)
        for inspection in service.inspections.values():
            found += await looking.look(inspection)
        return found, looking.failed


class _Starts:
    """Starts the run that repairs one thing.

    A run of that key may be there already; then it is the repair, whether or not it has ended.
    """

    def __init__(self, service: Milepost, inspection: Inspection[Any], compared: Compared[Any]) -> None:
        self._service, self._inspection, self._compared = service, inspection, compared

    async def repair(
        self, connection: asyncpg.Connection[Any], seen: Observation, action: Action
    ) -> str | None:
        """Start it in the open transaction."""
        saga, make = self._inspection.repairs[action]
        try:
            ref = await self._service.start(connection, saga, make(self._compared), tenant=seen.tenant)
        except StateError as error:  # its key or its lock is another run's
            raise UsageError(error.code, error.text) from error
        return f"run {ref.saga}/{ref.key} started"
