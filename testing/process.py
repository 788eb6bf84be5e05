"""The worker process that a kit pretends to have. It can die; then another one with a lease of its own takes over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from ..consumers.artifacts import keeping_of
from ..consumers.attempts import Attempt, Claimed
from ..consumers.calls import Tools
from ..consumers.engine import Engine
from ..consumers.gates import Gate
from ..consumers.lease import Lease
from ..consumers.pulse import Pulse
from ..consumers.rechecking import Rechecker
from ..consumers.slots import Slots
from ..consumers.worker import Worker
from ..schemas.envelope import Record
from ..schemas.messages import compensation_topic, work_topic
from ..streams.database import Database
from .faults import Faults, WorkerDied
from .service import Opened

#: The kit's lease ends when the process dies, never by itself: a long `advance` is no stall of the process.
LEASE = timedelta(days=365 * 100)
#: Steps are run one at a time; more slots only keep a step that hangs from holding up the claims of others.
SLOTS = 100


class _Worker(Worker):
    """A worker whose process may die at planned points."""

    def __init__(self, *arguments: Any, faults: Faults, died: Callable[[], None], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._faults = faults
        self._died = died

    async def _work(self, claimed: Claimed) -> None:
        try:
            await super()._work(claimed)
        except WorkerDied:
            self._died()

    async def _one(self, claimed: Claimed, attempt: Attempt) -> Claimed | None:
        following = await super()._one(claimed, attempt)
        self._faults.recorded((f"{claimed.run.saga}/{claimed.run.definition}", claimed.step.name))
        return following

    async def idle(self, deadline: float) -> bool:
        """Wait until nothing runs; False when that is not so by the deadline (the loop's time, in seconds)."""
        while self._tasks:
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                return False
            await asyncio.wait(set(self._tasks), timeout=left)
        return True


class Process:
    """One worker process of a service.

    Args:
        opened: The service on its throwaway database.
        clients: Returns the client for a class.
        faults: What is to go wrong.
    """

    def __init__(self, opened: Opened, clients: Callable[[type[Any]], Any], faults: Faults) -> None:
        self.dead = False
        service = opened.service
        self._lease = Lease(
            opened.database.pool,
            service.clock,
            service.ids,
            LEASE,
            service=service.name,
            process="test kit",
            roles=["worker", "compensator"],
            queues=service.definitions.queues,
            definitions=service.definitions.ids,
            pins=service.definitions.pins,
        )
        self._pulse = Pulse(opened.database.pool, self._lease, service.clock, lambda: False, every=LEASE)
        tools = Tools(
            clients=clients,
            verdicts=service.verdicts,
            check_lease=self._lease.check,
            stopping=lambda: False,
            pulse=self._pulse,
            max_result_bytes=opened.settings.max_result_bytes,
            keeping=keeping_of(opened.settings, opened.database.pool),
            around=faults.around,
        )
        self._gate = Gate(service, opened.engine)
        self.rechecker = Rechecker(
            opened.engine, self._lease, tools, queues=service.definitions.queues, ready=lambda: True
        )
        self._workers: dict[str, _Worker] = {}
        for queue in service.definitions.queues:
            worker = self._worker(opened.engine, opened.database, tools, queue, faults)
            for priority in service.definitions.priorities(queue):
                self._workers[work_topic(service.name, queue, priority)] = worker
                self._workers[compensation_topic(service.name, queue, priority)] = worker

    def _worker(
        self, engine: Engine, database: Database, tools: Tools, queue: str, faults: Faults
    ) -> _Worker:
        worker = _Worker(
            engine,
            database,
            self._lease,
            tools,
            queue=queue,
            slots=Slots(SLOTS),
            room=Slots(SLOTS),
            gate=self._gate,
            faults=faults,
            died=self._die,
        )
        worker.allow()
        return worker

    def _die(self) -> None:
        self.dead = True

    async def begin(self) -> None:
        """Take the lease."""
        await self._lease.take()

    async def look(self) -> None:
        """Tell the steps that hang here which runs are stopping."""
        await self._pulse.look()

    def serves(self, topic: str) -> bool:
        """Whether this is one of its topics."""
        return topic in self._workers

    async def handle(self, record: Record, deadline: float) -> None:
        """Claim what a message announces and run it to its end, at most until the deadline."""
        worker = self._workers[record.topic]
        await worker.handle([record])
        await worker.idle(deadline)

    async def end(self) -> None:
        """End the lease now; what still runs is cancelled and told what became of it."""
        for worker in set(self._workers.values()):
            await worker.drain(lambda: 0.0)
        await self._lease.release()
