"""What a process tells of itself and of the database when somebody collects metrics."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Any, cast

import asyncpg

from ..recovery.ages import Seen
from ..recovery.observing import WITHIN, look
from ..schemas.ids import Clock
from ..streams import measures
from ..streams.lifecycle import Health, Progressing, Role, Stop
from ..streams.metrics import Meters, Point, Told, exposition
from ..streams.reader import GroupReader
from .engine import DATABASE_ERRORS
from .probes import Exposing

logger = logging.getLogger("milepost")

#: Youngest age of a look that is repeated, in seconds: several who scrape at once cause one look.
AGAIN = 2.0
#: Age at which a look says nothing any more, in seconds.
OLD = 30.0
#: How often the database is looked at where metrics are pushed, in seconds.
EVERY = 15.0


class Observer:
    """Looks at the database when somebody asks, and at the parts of this process.

    One look is a dozen short statements on one connection of the pool, at most one at a time and one in two seconds.
    When the database does not answer, what it would have said is left out, and `milepost.database.up` is 0.

    Args:
        service: Name of the service.
        pool: The database.
        parts: The parts of this process.
        clock: For elapsed time.
        told: Where metrics go.
    """

    name = "metrics"

    def __init__(
        self, service: str, pool: asyncpg.Pool[Any], parts: Sequence[Role], clock: Clock, told: Told
    ) -> None:
        self._service = service
        self._pool = pool
        self._parts = parts
        self._clock = clock
        self._told = told
        self._seen: Seen | None = None
        self._at = float("-inf")
        self._took = 0.0
        self._up = False
        self._trouble = ""
        self._looking = asyncio.Lock()

    def tell(self, meters: Meters) -> None:
        """Make the gauges ask here."""
        for metric, source in (
            (measures.WELL, self._well),
            (measures.STUCK, self._stuck),
            (measures.LAG, self._lag),
            (measures.ROWS, self._rows),
            (measures.AGE, self._ages),
            (measures.RUNS, self._live),
            (measures.WORKERS, self._workers),
            (measures.RESUMED, self._resumed),
            (measures.PARTITIONS, self._days),
            (measures.DATABASE, lambda: [(float(self._up), ())]),
            (measures.LOOK, lambda: [(self._took, ())]),
        ):
            meters.observe(metric, source)

    async def run(self, stop: Stop) -> None:
        """Look now and then where metrics are pushed; where they are fetched, each fetch looks."""
        while self._told.pushed and not stop.asked:
            await self.fresh()
            await stop.wait(EVERY)

    def health(self) -> Health:
        """Always well: that nobody sees is no reason to stop working."""
        return Health(True, self._trouble or "observing")

    def exposing(self) -> Exposing | None:
        """Return what the Prometheus endpoint answers; None where there is none."""
        registry = self._told.registry
        if registry is None:
            return None

        async def read() -> bytes:
            await self.fresh()
            return await asyncio.to_thread(exposition, registry)

        return Exposing("text/plain; version=0.0.4; charset=utf-8", read)

    async def fresh(self) -> None:
        """Look at the database, unless that was done a moment ago."""
        async with self._looking:
            began = self._clock.monotonic()
            if began - self._at < AGAIN:
                return
            try:
                async with asyncio.timeout(2 * WITHIN.total_seconds()):
                    async with self._pool.acquire() as proxy:
                        self._seen = await look(cast("asyncpg.Connection[Any]", proxy))
                self._up, self._trouble = True, ""
            except DATABASE_ERRORS as error:
                if not self._trouble:
                    logger.warning("metrics: the database was not seen: %s: %s", type(error).__name__, error)
                self._up, self._trouble = False, f"the database was not seen: {type(error).__name__}"
                self._seen = None
            self._at = self._clock.monotonic()
            self._took = self._at - began

    def _now(self) -> Seen | None:
        return self._seen if self._clock.monotonic() - self._at < OLD else None

    def _well(self) -> Iterable[Point]:
        return [(float(part.health().ok), (self._service, part.name)) for part in self._parts]

    def _stuck(self) -> Iterable[Point]:
        return [
            (part.stuck_for(), (self._service, part.name))
            for part in self._parts
            if isinstance(part, Progressing)
        ]

    def _lag(self) -> Iterable[Point]:
        return [
            (float(lag), (self._service, part.name, topic))
            for part in self._parts
            if isinstance(part, GroupReader)
            for topic, lag in part.lag().items()
        ]

    def _rows(self) -> Iterable[Point]:
        seen = self._now()
        return [
            (float(age.amount), (age.what, age.service, age.saga, age.severity.value))
            for age in (seen.ages if seen is not None else ())
        ]

    def _ages(self) -> Iterable[Point]:
        seen = self._now()
        return [
            (age.seconds or 0.0, (age.what, age.service, age.saga, age.severity.value))
            for age in (seen.ages if seen is not None else ())
        ]

    def _live(self) -> Iterable[Point]:
        seen = self._now()
        return [(float(amount), labels) for labels, amount in (seen.live if seen is not None else {}).items()]

    def _workers(self) -> Iterable[Point]:
        seen = self._now()
        return [
            (float(amount), (service,))
            for service, amount in (seen.workers if seen is not None else {}).items()
        ]

    def _resumed(self) -> Iterable[Point]:
        seen = self._now()
        return [
            (float(amount), labels) for labels, amount in (seen.resumed if seen is not None else {}).items()
        ]

    def _days(self) -> Iterable[Point]:
        seen = self._now()
        return [(float(days), (table,)) for table, days in (seen.days if seen is not None else {}).items()]
