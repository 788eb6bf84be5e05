"""The role `reconciler`: looks again and again for what has drifted, and carries out what policies say about it."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

import asyncpg

from ..recovery.executor import Executor
from ..recovery.model import DECIDED, Outcome, Reconciled
from ..recovery.passing import Pass, leading
from ..recovery.proposing import DriftProposals
from ..schemas.errors import StateError
from ..streams import measures
from ..streams.database import Database
from ..streams.lifecycle import Health, Stop
from ..streams.metrics import meters
from .clients import ClientFailed, Clients
from .engine import DATABASE_ERRORS
from .inspecting import Inspecting

if TYPE_CHECKING:
    from .app import Milepost

#: How long what the reconciler proposes may be accepted: it is not proposed again while the trouble lasts.
STANDS = timedelta(days=30)

logger = logging.getLogger("milepost")


class Reconciler:
    """Looks for a service, in one process at a time.

    Args:
        service: The application.
        database: Opened pool.
    """

    name = "reconciler"

    def __init__(self, service: Milepost, database: Database) -> None:
        self._service = service
        self._database = database
        self._trouble: str | None = None
        self._client: str | None = None
        self._passes = self._decided = 0

    async def run(self, stop: Stop) -> None:
        """Look until asked to stop."""
        every = self._service.settings.reconcile_every.total_seconds()
        async with AsyncExitStack() as stack:
            clients = Clients(self._service.factories)
            while not stop.asked:
                await self._guarded(clients, stack)
                await stop.wait(every)

    async def _guarded(self, clients: Clients, stack: AsyncExitStack) -> None:
        try:
            await self.turn()
            await self._inspect(clients, stack)
        except (*DATABASE_ERRORS, StateError) as error:
            if self._trouble is None:
                logger.warning("reconciler: %s: %s; trying again", type(error).__name__, error)
            self._trouble = f"{type(error).__name__}: {error}"
            return
        self._trouble = None

    async def turn(self) -> list[Reconciled]:
        """Make a pass, unless another process makes one or has just made one.

        Returns:
            What was found.
        """
        every = self._service.settings.reconcile_every * 0.9
        async with self._connection() as leader, self._connection() as connection:
            async with leading(leader, self._service.name, every) as places:
                if places is None:
                    return []
                executor = self.executor()
                found = await Pass(
                    connection, self._service.policies, executor, service=self._service.name
                ).once(places)
        self._passes += 1
        self._told(found)
        return found

    def executor(self) -> Executor:
        """Return what carries plans out for the service itself."""
        return Executor(ids=self._service.ids, proposals=DriftProposals(self._service.ids, STANDS))

    async def _inspect(self, clients: Clients, stack: AsyncExitStack) -> None:
        """Look at what the service inspects, where it is due."""
        if not self._service.inspections:
            return
        try:
            await clients.open(stack)
        except ClientFailed as error:
            if self._client is None:
                logger.warning("reconciler: client %s; trying again", error)
            self._client = f"client {error}"
            return
        self._client = None
        async with self._connection() as connection:
            looking = Inspecting(self._service, connection, self.executor(), clients.get)
            self._told(await looking.due())

    def _told(self, found: Sequence[Reconciled]) -> None:
        tell(found)
        self._decided += sum(one.outcome in DECIDED for one in found)

    @asynccontextmanager
    async def _connection(self) -> AsyncGenerator[asyncpg.Connection[Any]]:
        async with self._database.pool.acquire() as proxy:
            yield cast("asyncpg.Connection[Any]", proxy)

    def health(self) -> Health:
        """Red while the database does not answer, or a client cannot be opened."""
        trouble = self._trouble or self._client
        return Health(trouble is None, trouble or f"{self._passes} passes, {self._decided} decisions")


def tell(found: Sequence[Reconciled]) -> None:
    """Say in the log what was decided."""
    for one in found:
        if one.outcome not in DECIDED:
            continue
        _count(one)
        words = (one.observation.drift, one.observation.label, one.plan.action, one.outcome, one.plan.reason)
        if one.outcome is Outcome.REPAIRED:
            logger.info("reconciler: %s of %s: %s, %s: %s", *words)
        else:
            logger.error("MP651 %s of %s: %s, %s: %s", *words)


def _count(one: Reconciled) -> None:
    found, seen = meters(), one.observation
    if found is not None:
        decision = one.plan.action.value if one.outcome is Outcome.REPAIRED else one.outcome.value
        found.add(measures.RECONCILED, (seen.service, seen.saga or "", decision))
