"""The recording Kafka: what was committed to the outbox is handed to the service's own handlers, one record at a time.

Each topic has one partition. Nothing runs in the background: all that happens, happens within `turn`.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, TypeAlias
from uuid import UUID

from ..consumers.carrying import Carrier
from ..consumers.judging import judge_of
from ..consumers.orchestrator import Orchestrator
from ..consumers.publishing import publish_in
from ..consumers.signals import signal_consumer
from ..consumers.waker import Waker
from ..consumers.webhook_work import WebhookWork
from ..inbox.consumer import Consumer
from ..inbox.intake import Intake
from ..outbox.model import OutboxRow
from ..schemas.envelope import Record
from ..schemas.messages import replies_topic, runs_topic, timers_topic
from .faults import Faults
from .process import Process
from .service import Opened, Steady
from .store import Sql

Handle: TypeAlias = Callable[[Sequence[Record]], Awaitable[None]]


class Pump:
    """Moves a service on, step by step.

    Args:
        opened: The service on its throwaway database.
        clients: Returns the client for a class.
        faults: What is to go wrong.
    """

    def __init__(self, opened: Opened, clients: Callable[[type[Any]], Any], faults: Faults) -> None:
        self._opened = opened
        self._clients = clients
        self._faults = faults
        self._process = Process(opened, clients, faults)
        self._waker = Waker(opened.engine, push=opened.settings.nudge, sweep_every=opened.settings.lease)
        self._carrier = Carrier(opened.engine, max_result_bytes=opened.settings.max_result_bytes)
        self._hooks = WebhookWork(opened.service, opened.database.pool, lease=opened.settings.lease)
        self._handlers = _handlers(opened)
        self._seen: list[UUID] = []
        self._offsets: Counter[str] = Counter()
        self._records: deque[Record] = deque()

    async def begin(self) -> None:
        """Take the worker's lease."""
        await self._process.begin()

    async def end(self) -> None:
        """Let the worker hand back what still runs."""
        await self._process.end()

    def reads(self, topic: str) -> bool:
        """Whether a consumer or a wait of the service reads a topic of events."""
        return topic in self._handlers

    async def turn(self, deadline: float) -> bool:
        """Do the next thing that is due, waiting for a step at most until the deadline.

        Args:
            deadline: In the running loop's time, seconds.

        Returns:
            False when nothing is to be done before the clock moves or something comes from outside.
        """
        if self._process.dead:
            await self._take_over()
            return True
        if not self._records and await self._carrier.turn() > 0:
            await self._process.look()
            return True
        if not self._records and await self._process.rechecker.turn():
            return True
        if not self._records:
            await self._read_outbox()
        if self._records:
            await self._hand_over(self._records.popleft(), deadline)
            return True
        return await self._hooks.turn() > 0 or await self._waker.tick() > 0

    async def deliver(self, rows: Iterable[OutboxRow]) -> None:
        """Hand events from outside to whoever reads their topic, before anything else."""
        for row in rows:
            headers = [(name, value.encode()) for name, value in row.headers.items()]
            record = self._record(row.topic, row.aggregateid, row.payload, headers)
            await self._hand_over(record, float("inf"))

    async def _take_over(self) -> None:
        """Bury the dead process: its lease ends, another process begins, and the sweep finds its steps."""
        await self._process.end()
        self._process = Process(self._opened, self._clients, self._faults)
        await self._process.begin()
        await self._waker.sweep()

    async def _read_outbox(self) -> None:
        # By id and not by a position: a transaction that commits late has lower numbers than those already read.
        for row in await self._opened.database.pool.fetch(Sql.new_outbox_rows, self._seen):
            self._seen.append(row["id"])
            headers = [(name, value.encode()) for name, value in json.loads(row["headers"]).items()]
            self._records.append(self._record(row["topic"], row["aggregateid"], row["payload"], headers))

    def _record(
        self, topic: str, key: str | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]
    ) -> Record:
        offset = self._offsets[topic]
        self._offsets[topic] += 1
        return Record(
            topic=topic,
            partition=0,
            offset=offset,
            key=None if key is None else key.encode(),
            value=value,
            headers=headers,
            timestamp_ms=int(self._opened.clock.now().timestamp() * 1000),
        )

    async def _hand_over(self, record: Record, deadline: float) -> None:
        if self._process.serves(record.topic):
            await self._process.handle(record, deadline)
            return
        for handle in self._handlers.get(record.topic, ()):
            await handle([record])

    async def set_clock(self, instant: datetime) -> None:
        """Move the clock forward, here and in the database."""
        await self._opened.database.pool.execute(Sql.set_clock, instant)
        self._opened.clock.advance(max(instant - self._opened.clock.now(), timedelta(0)))

    async def skip_delay(self) -> bool:
        """Move the clock to the next retry, probe or nudge; False when a wait or a person would come first."""
        name = self._opened.service.name
        instant = await self._opened.database.pool.fetchval(Sql.next_delay, name)
        if instant is None:
            return False
        await self.set_clock(max(instant, self._opened.clock.now()))
        return True

    async def next_due(self) -> datetime | None:
        """When the next row of a run is due, whatever it is."""
        due: datetime | None = await self._opened.database.pool.fetchval(
            Sql.next_due, self._opened.service.name
        )
        return due


def _handlers(opened: Opened) -> dict[str, list[Handle]]:
    """Return who reads which topic, beside the workers."""
    service = opened.service
    orchestrator = Orchestrator(opened.engine)
    found: dict[str, list[Handle]] = {
        runs_topic(service.name): [orchestrator.handle],
        timers_topic(service.name): [orchestrator.handle],
        replies_topic(service.name): [orchestrator.handle],
    }
    for consumer in (*service.consumers.values(), signal_consumer(service)):
        intake = _intake(opened, consumer)
        for topic in consumer.topics:
            found.setdefault(topic, []).append(intake.handle)
    return found


def _intake(opened: Opened, consumer: Consumer) -> Intake:
    # A failing event is tried again at once: nobody waits for real seconds in a test.
    judge = judge_of(opened.service)
    return Intake(
        consumer,
        opened.database,
        publish_in,
        clock=opened.clock,
        dice=Steady(0.0),
        judge=lambda error: replace(judge(error), retry_after=None),
    )
