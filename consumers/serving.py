"""`milepost serve`: one process with the roles it was asked for, from first check to last hand-back."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from ..schemas.errors import StartError
from ..schemas.ids import Clock
from ..schemas.settings import Settings
from ..streams.database import Database
from ..streams.lifecycle import Health, Role, Stop, run_roles
from ..streams.measures import CATALOG
from ..streams.metrics import Told, meters, setup_metrics
from ..streams.migrate import current_version, migration_files
from ..streams.topics import describe, ensure_topics, keeps
from ..streams.tracing import setup_tracing
from .assembly import ROLES, Assembly
from .choosing import chosen
from .measuring import Observer
from .memory import shorter_than_runs, too_short
from .opening import check_open_runs
from .probes import Exposing, Probes, answering
from .watchdog import Watchdog
from .workflows import register

if TYPE_CHECKING:
    from .app import Milepost

__all__ = ["ROLES", "serve"]

logger = logging.getLogger("milepost")

Announce = Callable[[Mapping[str, object]], None]

#: How often health is looked at, in seconds.
LOOK = 0.2
#: How long the event loop must stand still before that is said, in seconds.
BLOCKED = 1.0
#: Connections of the pool: a few per role. An outside step holds one only while a change is stored, a transactional
#: one while its code runs, which is why fewer of those run at once (assembly.TRANSACTIONS).
POOL = 16


async def serve(
    service: Milepost,
    *,
    roles: Sequence[str] | None = None,
    queues: Sequence[str] | None = None,
    announce: Announce,
) -> None:
    """Run roles until SIGTERM or SIGINT; a second signal ends the grace time at once.

    Args:
        service: The application.
        roles: Some of ROLES; None for all.
        queues: Queues that workers serve; None for all of the service's definitions.
        announce: Receives {"event": "ready", "roles": [...]} and changes of health.

    Raises:
        ConnectError: MP501, MP502 when PostgreSQL or Kafka cannot be reached at the start.
        StartError: MP201 open runs whose definition nobody has, MP209 wrong schema version, MP207 unknown role or
            queue, MP208 missing event topics, MP202 an inbox that forgets too early, MP230 history or audit that would,
            MP220 unusable certificates, MP221 nobody can listen at MILEPOST_HEALTH or
            MILEPOST_METRICS, MP750 for which milepost[metrics] is missing.
        StateError: MP430 when a reader has made no progress for too long.
    """
    picked = chosen(ROLES, roles, "role")
    served = chosen(service.definitions.queues, queues, "queue")
    stop = Stop(service.clock, service.settings.grace)
    await check_schema(service)
    announce({"event": "starting", "roles": picked})
    flush = setup_tracing(service.name)
    told = setup_metrics(service.name, CATALOG, endpoint=service.settings.metrics is not None)
    async with _connected(service, flush, told) as (database, keeper):
        await check_open_runs(service, database.pool)
        await register(database.pool, service.name, service.definitions)
        assembly = Assembly(service, database, keeper, picked, served, stop)
        await make_topics(service, assembly)
        await look_at_retention(service, assembly)
        parts = assembly.parts()
        observer = None if told is None else _observer(service, database, parts, told)
        watchers: list[Role] = [Announcer(parts, picked, announce, service.clock), _watchdog(service, parts)]
        watchers += [] if observer is None else [observer]
        collect_rarely()
        probes = Probes(parts, stop, service.settings.stuck_after)
        async with _answering(service.settings, probes, None if observer is None else observer.exposing()):
            with _signals(stop):
                await run_roles([*parts, *watchers], stop)
        announce({"event": "stopped"})


@asynccontextmanager
async def _connected(
    service: Milepost, flush: Callable[[], None], told: Told | None
) -> AsyncGenerator[tuple[Database, Database]]:
    """Give the roles their connections, and leases one of their own; afterwards everything is closed and told."""
    database = Database(service.settings, engine=service.engine, max_size=POOL)
    keeper = Database(service.settings, max_size=1)
    try:
        await database.open()
        await keeper.open()
        yield database, keeper
    finally:
        await database.close()
        await keeper.close()
        await service.close()
        if service.engine is not None:
            await service.engine.dispose()
        await asyncio.to_thread(flush)
        if told is not None:
            await asyncio.to_thread(told.close)


def collect_rarely() -> None:
    """Let Python look for cycles among what is alive now never again, and among the rest only after 50,000 objects.

    Pages and batches are thousands of small objects that all die by their counts. Looking through them again and again,
    as it does after 700, took a fifth of a consumer's time.

    Source: https://docs.python.org/3/library/gc.html
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, *gc.get_threshold()[1:])


def _observer(service: Milepost, database: Database, parts: Sequence[Role], told: Told) -> Observer:
    observer = Observer(service.name, database.pool, parts, service.clock, told)
    found = meters()
    assert found is not None, "it was set up"
    found.severities = {each.name: each.severity.value for each in service.definitions}
    observer.tell(found)
    return observer


@asynccontextmanager
async def _answering(settings: Settings, probes: Probes, exposing: Exposing | None) -> AsyncGenerator[None]:
    """Answer at one address or at two."""
    same = settings.health == settings.metrics
    async with answering(settings.health, probes, exposing if same else None):
        async with answering(
            None if same else settings.metrics, probes, exposing, setting="MILEPOST_METRICS"
        ):
            yield


def _watchdog(service: Milepost, parts: Sequence[Role]) -> Watchdog:
    async def servers_answer() -> None:
        await current_version(service.settings.dsn)
        await describe(service.settings, (), within=10.0)

    settings = service.settings
    return Watchdog(parts, after=settings.stuck_after, grace=settings.grace, servers_answer=servers_answer)


async def check_schema(service: Milepost) -> None:
    """Refuse to run on another schema than this version's.

    Raises:
        StartError: MP209.
    """
    found, wanted = (
        await current_version(service.settings.dsn),
        max(file.number for file in migration_files()),
    )
    if found < wanted:
        raise StartError(
            "MP209",
            f"the database has schema {found}, this version needs {wanted}. Run `milepost migrate` first.",
        )


async def make_topics(service: Milepost, assembly: Assembly) -> None:
    """Create missing internal topics, and event topics where that is allowed.

    Raises:
        StartError: MP208 when an event topic is missing and may not be created.
    """
    kafka, events = service.settings, assembly.event_topics()
    await ensure_topics(kafka, assembly.topics() + (events if service.settings.create_topics else []))
    missing = sorted(set(events) - (await describe(kafka, events)).keys()) if events else []
    if missing:
        raise StartError(
            "MP208",
            f"topic {', '.join(missing)}: this service reads it, and it does not exist. Create it, or set "
            "MILEPOST_CREATE_TOPICS=true.",
        )


async def look_at_retention(service: Milepost, assembly: Assembly) -> None:
    """Learn how long event topics keep their records, which the inbox has to outlast.

    Raises:
        StartError: MP202 when it would not, and this process reads them or purges it; MP230 when this process would
            have to forget what is told of a run before the run.
    """
    if "upkeep" in assembly.roles:
        for refusal in shorter_than_runs(service.settings):
            raise refusal
    if not {"consumers", "signals", "upkeep"} & set(assembly.roles):
        return
    kept = await keeps(service.settings, assembly.event_topics())
    for refusal in too_short(service.settings, kept):
        raise refusal
    assembly.unlimited = frozenset(topic for topic, retention in kept.items() if retention is None)


@contextmanager
def _signals(stop: Stop) -> Generator[None]:
    loop = asyncio.get_running_loop()

    def asked() -> None:
        stop.ask(now=stop.asked)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


class Announcer:
    """Says "ready" once every part is well, later which part became unwell or well again, and watches the loop."""

    name = "announcer"

    def __init__(self, parts: Sequence[Role], roles: Sequence[str], announce: Announce, clock: Clock) -> None:
        self._parts = parts
        self._roles = roles
        self._announce = announce
        self._clock = clock

    async def run(self, stop: Stop) -> None:
        """Look at all parts until asked to stop."""
        ready, red = False, dict[str, str]()
        while not stop.asked:
            states = {part.name: part.health() for part in self._parts}
            now_red = {name: health.detail for name, health in states.items() if not health.ok}
            if not ready and not now_red:
                ready = True
                details = {name: health.detail for name, health in states.items()}
                self._announce({"event": "ready", "roles": list(self._roles), "parts": details})
            elif ready and now_red.keys() != red.keys():
                self._changes(states, red, now_red)
            red = now_red
            began = self._clock.monotonic()
            await stop.wait(LOOK)
            self._blocked(self._clock.monotonic() - began - LOOK)
        self._announce({"event": "stopping", "grace_s": round(stop.remaining(), 1)})

    def _blocked(self, seconds: float) -> None:
        """Say that this process's own code kept everything waiting; the lease and Kafka's sessions suffer from it."""
        if seconds >= BLOCKED:
            running = [task.get_name() for task in asyncio.all_tasks() if "/" in task.get_name()]
            logger.warning(
                "MP303 the event loop was blocked for %.1f s. Running: %s. Call blocking code with asyncio.to_thread.",
                seconds,
                ", ".join(sorted(running)[:5]) or "no step",
            )

    def _changes(
        self, states: Mapping[str, Health], before: Mapping[str, str], now: Mapping[str, str]
    ) -> None:
        for name in sorted(before.keys() ^ now.keys()):
            self._announce(
                {"event": "health", "part": name, "ok": states[name].ok, "detail": states[name].detail}
            )

    def health(self) -> Health:
        """Always well."""
        return Health(True, "announcing")
