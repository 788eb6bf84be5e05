"""Which parts a process runs for the roles it was asked for."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from ..inbox.consumer import Consumer
from ..inbox.intake import Intake
from ..inbox.redrive import Redriver
from ..outbox.relay import Relay
from ..outbox.upkeep import Upkeep
from ..recovery.bulk_carrying import BulkCarrier
from ..recovery.sealing import Sealer
from ..schemas.envelope import Record
from ..schemas.events import declared_topics
from ..schemas.messages import compensation_topic, replies_topic, runs_topic, timers_topic, work_topic
from ..streams.database import Database
from ..streams.lifecycle import Role, Stop
from ..streams.membership import GroupOptions
from ..streams.reader import GroupReader
from ..streams.reader_lane import Handle
from .ageing import Ageing
from .artifacts import keeping_of
from .calls import Tools
from .carrying import Carrier
from .clearing import Clearing
from .clients import Clients, Crew
from .dead_topic import dead_topics, reporter
from .early import Early
from .engine import Engine, changes_of
from .gates import Gate
from .judging import judge_of
from .lease import Lease
from .orchestrator import Orchestrator
from .presence import Presence
from .publishing import publish_in
from .pulse import Pulse
from .queues import lane_topics, plan
from .rechecking import Rechecker
from .reconciler import Reconciler
from .retention import Retention
from .signals import signal_consumer
from .slots import Slots
from .tallying import Tallying
from .waker import Waker
from .webhook_work import WebhookWork
from .worker import Worker, handed_over

if TYPE_CHECKING:
    from .app import Milepost

#: What `--roles` may name. worker and compensator call the outside world, the others do not.
ROLES: tuple[str, ...] = (
    "relay",
    "orchestrator",
    "worker",
    "compensator",
    "signals",
    "consumers",
    "waker",
    "reconciler",
    "upkeep",
)
#: Orchestrator messages handled per call; each is one change of a run.
ORCHESTRATOR_BATCH = 100
#: Transactional steps at once in a process: each holds a connection while the user's code runs, of the pool (16) or
#: of the engine (SQLAlchemy's default is 5 and 10 more).
TRANSACTIONS = 8


@dataclass
class Assembly:
    """Builds the parts of one process.

    Args:
        service: The application.
        database: Opened pool.
        keeper: Opened pool for nothing but the lease, so that no step can keep it from being renewed.
        roles: Chosen roles.
        queues: Chosen queues, for worker and compensator.
        stop: Shared by all parts.
    """

    service: Milepost
    database: Database
    keeper: Database
    roles: Sequence[str]
    queues: Sequence[str]
    stop: Stop

    def __post_init__(self) -> None:
        self.engine = Engine(changes_of(self.service), self.database.pool)
        # Event topics that keep their records for good, once they were looked at.
        self.unlimited: frozenset[str] = frozenset()
        self.early = Early()

    def parts(self) -> list[Role]:
        """Return everything that this process is to run."""
        makers: dict[str, Callable[[], Iterable[Role]]] = {
            "relay": self._relay,
            "orchestrator": self._orchestrator,
            "signals": self._signals,
            "consumers": self._consumers,
            "waker": self._waker,
            "upkeep": self._upkeep,
            "reconciler": self._reconciler,
        }
        parts: list[Role] = []
        for role in self.roles:
            if role in makers:
                parts.extend(makers[role]())
        if {"worker", "compensator"} & set(self.roles):
            parts.extend(self._workers())
        return parts

    def topics(self) -> list[str]:
        """Return the service's internal topics, whatever roles run here."""
        name = self.service.name
        lanes = lane_topics(self.service)
        own = [*lanes, runs_topic(name), timers_topic(name), replies_topic(name)]
        return (own if len(self.service.definitions) else []) + dead_topics(self.service)

    def event_topics(self) -> list[str]:
        """Return the topics of the events that this service reads."""
        consumers = [*self.service.consumers.values(), signal_consumer(self.service)]
        return sorted({topic for consumer in consumers for topic in consumer.topics})

    def _relay(self) -> list[Role]:
        service = self.service
        return [
            Relay(
                self.database,
                clock=service.clock,
                ids=service.ids,
                randomness=service.randomness,
                topics=declared_topics(),
                seen=self.early.seen,
            )
        ]

    def _upkeep(self) -> list[Role]:
        kinds = (Upkeep, Retention, Ageing, Clearing, Tallying)
        parts: list[Role] = [part(self.database, clock=self.service.clock) for part in kinds]
        return [*parts, Sealer(self.database.pool), BulkCarrier(self.database.pool)]

    def _reconciler(self) -> list[Role]:
        return [Reconciler(self.service, self.database)]

    def _waker(self) -> list[Role]:
        settings = self.service.settings
        every, after = settings.lease / 3, settings.park_after
        return [Waker(self.engine, push=settings.nudge, sweep_every=every, park_after=after)]

    def _orchestrator(self) -> list[Role]:
        if not len(self.service.definitions):
            return []
        name = self.service.name
        orchestrator = Orchestrator(self.engine)
        topics = [runs_topic(name), timers_topic(name), replies_topic(name)]
        group = f"{name}.orchestrator"
        carrier = Carrier(self.engine, max_result_bytes=self.service.settings.max_result_bytes)
        reader = self._reader("orchestrator", group, topics, orchestrator.handle, ORCHESTRATOR_BATCH)
        return [reader, carrier, orchestrator.handed_over()]

    def _signals(self) -> list[Role]:
        consumer = signal_consumer(self.service)
        parts: list[Role] = self._reading({"signals": consumer}, "redrive signals")
        if self.service.webhooks:
            parts.append(WebhookWork(self.service, self.database.pool, lease=self.service.settings.lease))
        return parts

    def _consumers(self) -> list[Role]:
        return self._reading({f"consumer {c.name}": c for c in self.service.consumers.values()}, "redrive")

    def _reading(self, consumers: Mapping[str, Consumer], redrive: str) -> list[Role]:
        """Return the readers of consumers, by name, and what handles their redriven letters."""
        reading = {name: consumer for name, consumer in consumers.items() if consumer.topics}
        if not reading:
            return []
        service = self.service
        redriver = Redriver(
            list(reading.values()),
            self.database,
            publish_in,
            clock=service.clock,
            ids=service.ids,
            dice=service.randomness,
            judge=judge_of(service),
            name=redrive,
        )
        presence = Presence(
            self.keeper.pool,
            service.ids,
            consumers=[consumer.name for consumer in reading.values()],
            service=service.name,
            process=_process(),
        )
        return [*(self._intake(name, consumer) for name, consumer in reading.items()), redriver, presence]

    def _intake(self, name: str, consumer: Consumer) -> Role:
        service = self.service
        intake = Intake(
            consumer,
            self.database,
            publish_in,
            clock=service.clock,
            dice=service.randomness,
            unlimited=self.unlimited,
            judge=judge_of(service),
            report=reporter(service, consumer.name),
        )
        return GroupReader(
            name=name,
            kafka=service.settings,
            group=consumer.name,
            topics=consumer.topics,
            handle=intake.handle,
            positions=intake.positions,
            past=intake.past,
            remarks=intake.counts.words,
            slow_after=self._slow_after(),
            max_records=consumer.batch,
            clock=service.clock,
            dice=service.randomness,
            options=self._timing(),
        )

    def _reader(self, name: str, group: str, topics: list[str], handle: Handle, most: int) -> Role:
        return GroupReader(
            name=name,
            kafka=self.service.settings,
            group=group,
            topics=topics,
            handle=handle,
            max_records=most,
            slow_after=self._slow_after(),
            clock=self.service.clock,
            dice=self.service.randomness,
            options=self._timing(),
        )

    def _slow_after(self) -> float:
        """Seconds after which handlers that still run turn health red; the rest of `stuck_after` is for people."""
        return self.service.settings.stuck_after.total_seconds() / 3

    def _timing(self) -> GroupOptions:
        """A member that is gone loses its partitions about when its lease ends, but after 15 s at the latest."""
        lease = max(self.service.settings.lease, timedelta(seconds=6))
        return GroupOptions(session_timeout=min(lease, timedelta(seconds=15)))

    def _workers(self) -> list[Role]:
        service, settings = self.service, self.service.settings
        lease = Lease(
            self.keeper.pool,
            service.clock,
            service.ids,
            settings.lease,
            service=service.name,
            process=_process(),
            roles=self.roles,
            queues=self.queues,
            definitions=service.definitions.ids,
            pins=service.definitions.pins,
        )
        pulse = Pulse(self.database.pool, lease, service.clock, self._stopping, every=settings.lease / 3)
        clients = Clients(service.factories)
        tools = Tools(
            clients=clients.get,
            verdicts=service.verdicts,
            check_lease=lease.check,
            stopping=self._stopping,
            pulse=pulse,
            max_result_bytes=settings.max_result_bytes,
            keeping=keeping_of(settings, self.database.pool),
        )
        gate = Gate(service, self.engine)
        plans = plan(self.service, self.queues)
        room = Slots(TRANSACTIONS, reserved=int(any(made.reserved for made in plans.values())))
        workers = {
            queue: Worker(
                self.engine,
                self.database,
                lease,
                tools,
                queue=queue,
                slots=plans[queue].slots,
                room=room,
                gate=gate,
            )
            for queue in self.queues
        }
        readers = [self._lane(role, q, worker) for q, worker in workers.items() for role in self._lanes()]
        crew = Crew(clients, workers, lease)
        looks = Rechecker(self.engine, lease, tools, queues=self.queues, ready=crew.ready)
        handed = handed_over(self.engine, workers, self._lanes())
        return [lease, pulse, crew, looks, *readers, handed]

    def _stopping(self) -> bool:
        return self.stop.asked

    def _lanes(self) -> list[str]:
        return [role for role in ("worker", "compensator") if role in self.roles]

    def _lane(self, role: str, queue: str, worker: Worker) -> Role:
        lane, topic = ("work", work_topic) if role == "worker" else ("compensation", compensation_topic)
        name, known = self.service.name, self.service.definitions
        topics = [topic(name, queue, priority) for priority in known.priorities(queue)]
        most = plan(self.service, [queue])[queue].total
        self.early.serve(topics, worker)

        async def handle(records: Sequence[Record]) -> None:
            await worker.handle(await self.early.unclaimed(records))

        return self._reader(f"{role} {queue}", f"{name}.{lane}.{queue}", topics, handle, most)


def _process() -> str:
    """Return what this process is called for people."""
    return f"{socket.gethostname()}:{os.getpid()}"
