"""What is said of the database when it does not answer, and how often it is asked."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import Any

import pytest
from milepost.consumers import measuring
from milepost.consumers.measuring import AGAIN, OLD, Observer
from milepost.recovery.age_kinds import KINDS
from milepost.recovery.ages import Age, Seen
from milepost.schemas.ids import ManualClock
from milepost.streams import measures
from milepost.streams.lifecycle import Health, Stop
from milepost.streams.metrics import Metric, Source, Told


class Sources:
    """Takes what gauges would ask."""

    def __init__(self) -> None:
        self.found: dict[Metric, Source] = {}

    def observe(self, metric: Metric, source: Source) -> None:
        self.found[metric] = source

    def read(self, metric: Metric) -> dict[tuple[str, ...], float]:
        return {tuple(labels): value for value, labels in self.found[metric]()}


class Part:
    name = "relay"

    async def run(self, stop: Stop) -> None:
        """Do nothing."""

    def health(self) -> Health:
        return Health(False, "Kafka is away")


class Pool:
    @asynccontextmanager
    async def acquire(self) -> Any:
        yield None


async def test_a_database_that_is_away_is_said_and_old_news_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    from datetime import UTC, datetime, timedelta

    clock, sources = ManualClock(datetime(2026, 1, 1, tzinfo=UTC)), Sources()
    asked, away = 0, False

    async def look(_: Any) -> Seen:
        nonlocal asked
        asked += 1
        if away:
            raise OSError("connection refused")
        await asyncio.sleep(0)
        return Seen(ages=(Age("outbox", 3, 7.5, severity=KINDS["outbox"].severity),), workers={"shop": 2})

    monkeypatch.setattr(measuring, "look", look)
    pool: Any = Pool()
    observer = Observer("shop", pool, [Part()], clock, Told(None, False, lambda: None))
    observer.tell(sources)  # type: ignore[arg-type]
    label = ("outbox", "", "", "CRITICAL")
    assert sources.read(measures.DATABASE) == {(): 0}
    assert sources.read(measures.AGE) == {}

    await asyncio.gather(*(observer.fresh() for _ in range(5)))
    assert asked == 1, "five who ask at once cause one look"
    assert sources.read(measures.AGE) == {label: 7.5}
    assert sources.read(measures.ROWS) == {label: 3}
    assert sources.read(measures.WORKERS) == {("shop",): 2}
    assert sources.read(measures.DATABASE) == {(): 1}
    assert sources.read(measures.WELL) == {("shop", "relay"): 0}

    away = True
    clock.advance(timedelta(seconds=AGAIN))
    await observer.fresh()
    assert (asked, sources.read(measures.DATABASE)) == (2, {(): 0})
    assert sources.read(measures.AGE) == {}, "what it said before is no news"
    assert not sources.read(measures.WORKERS)
    assert observer.health().ok, "that nobody sees is no reason to stop working"

    away = False
    clock.advance(timedelta(seconds=AGAIN))
    await observer.fresh()
    assert sources.read(measures.AGE) == {label: 7.5}
    clock.advance(timedelta(seconds=OLD))
    assert sources.read(measures.AGE) == {}
