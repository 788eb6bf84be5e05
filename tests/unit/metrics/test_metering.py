"""What changes of a run count for, decision by decision."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from milepost import Risk, Then
from milepost.consumers.metering import begun, count_change
from milepost.sagas.facts import Act
from milepost.sagas.model import Run
from milepost.schemas.ids import uuid7_at
from milepost.streams import measures, metrics
from milepost.streams.metrics import MOST_LABELS, Meters, Metric
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from tests.support.sagas import NOW, Play, add_step, flow, new_saga

Read = Callable[[Metric], dict[tuple[Any, ...], float]]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Iterator[Read]:
    """Count in this process, and read what was counted: values by labels, of a histogram its sums."""
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    made = Meters(provider, measures.CATALOG)
    made.severities = {"order": Risk.CRITICAL.value}
    monkeypatch.setattr(metrics._State, "meters", made)

    def of(metric: Metric) -> dict[tuple[Any, ...], float]:
        data = reader.get_metrics_data()
        found = [
            point
            for resource in (data.resource_metrics if data is not None else [])
            for scope in resource.scope_metrics
            for one in scope.metrics
            if one.name == metric.name
            for point in one.data.data_points
        ]
        return {
            tuple((point.attributes or {})[label] for label in metric.labels): getattr(
                point, "value", getattr(point, "sum", 0.0)
            )
            for point in found
        }

    yield of
    provider.shutdown()


class Counted(Play):
    """A play whose decisions are counted as the engine counts them: after they are stored."""

    def _keep(self, decision: Any) -> Any:
        before = self.run
        kept = super()._keep(decision)
        count_change("shop", before, decision)
        self.run = replace(self.run, version=self.run.version + 1)
        return kept


def played(saga: Any) -> Counted:
    play = Counted(flow(saga), started=False)
    play.run = replace(play.run, id=uuid7_at(int((NOW - timedelta(seconds=30)).timestamp() * 1000), 0))
    from milepost.sagas.facts import Start

    play.send(Start())
    return play


def test_a_run_that_ends_well(read: Read) -> None:
    saga = new_saga()
    add_step(saga, "reserve")
    play = played(saga)
    play.fail("reserve", "retry", "BUSY")
    play.retry("reserve")
    play.succeed("reserve")
    assert read(measures.STARTED) == {("shop", "order"): 1}
    assert read(measures.ENDED) == {("shop", "order", "CRITICAL", "SUCCEEDED"): 1}
    assert read(measures.TRIES) == {("shop", "order", "reserve"): 2}
    assert read(measures.RETRIES) == {("shop", "order", "reserve"): 1}
    assert read(measures.ERRORS) == {("shop", "order", "reserve", "BUSY"): 1}
    assert read(measures.STEPS) == {("shop", "order", "reserve", "SUCCEEDED"): 1}
    assert read(measures.STEP_DURATION) == {("shop", "order", "reserve"): (play.now - NOW).total_seconds()}
    ((_, duration),) = read(measures.RUN_DURATION).items()
    assert duration == pytest.approx((play.now - NOW).total_seconds() + 30)


def test_a_run_that_is_undone_and_one_that_a_person_lets_go_on(read: Read) -> None:
    saga = new_saga()
    add_step(saga, "reserve", undo=True)
    add_step(saga, "ship", on_failure=Then.PERSON)
    play = played(saga)
    play.succeed("reserve")
    play.fail("ship")
    assert read(measures.MANUAL) == {("shop", "order", "CRITICAL", "MANUAL_REQUIRED"): 1}
    play.now += timedelta(minutes=5)
    play.send(Act("compensate", by="ann", reason="sold out"))
    assert read(measures.REPAIR) == {("shop", "order"): 300}
    assert read(measures.COMPENSATING) == {("shop", "order"): 1}
    (undo,) = [step.name for step in play.run.steps if step.undo_of is not None]
    play.claim(undo)
    from milepost.sagas.facts import Succeeded

    play.send(Succeeded(undo, play.step(undo).fence, None))
    assert read(measures.ENDED) == {("shop", "order", "CRITICAL", "COMPENSATED"): 1}
    assert read(measures.STEPS)[("shop", "order", undo, "COMPENSATED")] == 1
    assert read(measures.TRIES)[("shop", "order", undo)] == 1


def test_codes_without_end_take_no_memory_without_end(read: Read) -> None:
    found = metrics.meters()
    assert found is not None
    for n in range(MOST_LABELS + 50):
        found.add(measures.ERRORS, ("shop", "order", "ask", f"CODE_{n}"))
    told = read(measures.ERRORS)
    assert len(told) == MOST_LABELS + 1
    assert told[("shop", "order", "ask", "OTHER")] == 50


def test_nothing_is_counted_where_nobody_collects() -> None:
    assert metrics.meters() is None
    assert metrics.setup_metrics("shop", measures.CATALOG, endpoint=False) is None
    saga = new_saga()
    add_step(saga, "reserve")
    played(saga).succeed("reserve")
    assert metrics.meters() is None


def test_the_id_of_a_run_says_when_it_began() -> None:
    run: Run = played(new_or(new_saga())).run
    assert begun(run.id) == (NOW - timedelta(seconds=30)).replace(
        microsecond=(NOW.microsecond // 1000) * 1000
    )
    assert begun(UUID(int=7)) is None


def new_or(saga: Any) -> Any:
    add_step(saga, "reserve")
    return saga
