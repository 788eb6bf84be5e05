"""A worker on a database, handed its messages by the test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from milepost import Milepost
from milepost.consumers.calls import Tools
from milepost.consumers.engine import Engine, changes_of
from milepost.consumers.gates import Gate
from milepost.consumers.lease import Lease
from milepost.consumers.pulse import Pulse
from milepost.consumers.slots import Slots
from milepost.consumers.worker import Worker
from milepost.schemas.ids import SystemClock, SystemIds
from milepost.schemas.messages import WorkMessage
from milepost.streams.database import Database

from tests.support.engine import settings_for


@dataclass
class Hand:
    """A worker with its lease."""

    worker: Worker
    lease: Lease
    engine: Engine

    async def take(self, run: UUID, saga: str, step: str) -> bool:
        """Announce a step to it."""
        return await self.worker.take(WorkMessage(run=run, saga=saga, definition=1, step=step))

    def idle(self) -> bool:
        """Whether it runs nothing."""
        return self.worker.busy == 0


@asynccontextmanager
async def worker_on(
    url: str,
    service: Milepost,
    *,
    lease: timedelta | None = None,
    slots: int = 4,
    room: int = 2,
    stopping: Callable[[], bool] = lambda: False,
) -> AsyncIterator[Hand]:
    """A worker whose connections go to a URL; its lease is held, and renewed only where the test runs it."""
    database, keeper = Database(settings_for(url)), Database(settings_for(url), max_size=1)
    await database.open()
    await keeper.open()
    engine = Engine(changes_of(service), database.pool)
    held = Lease(
        keeper.pool,
        SystemClock(),
        SystemIds(),
        lease or service.settings.lease,
        service=service.name,
        process="test",
        roles=["worker"],
        queues=["default"],
        definitions=service.definitions.ids,
        pins=service.definitions.pins,
    )
    await held.take()
    pulse = Pulse(database.pool, held, SystemClock(), stopping, every=service.settings.lease / 3)
    tools = Tools(
        clients=lambda kind: None,
        verdicts={},
        check_lease=held.check,
        stopping=stopping,
        pulse=pulse,
        max_result_bytes=10_000,
    )
    worker = Worker(
        engine,
        database,
        held,
        tools,
        queue="default",
        slots=Slots(slots),
        room=Slots(room),
        gate=Gate(service, engine),
    )
    worker.allow()
    try:
        yield Hand(worker, held, engine)
    finally:
        await worker.drain(lambda: 1.0)
        await database.close()
        await keeper.close()
