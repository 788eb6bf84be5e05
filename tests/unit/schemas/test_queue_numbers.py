"""Numbers for single queues in settings, and what follows from them."""

from __future__ import annotations

from typing import Any

import pytest
from milepost import Milepost, Priority, Saga, Settings, StartError
from milepost.consumers.queues import Plan, lane_topics, plan
from milepost.schemas.queues import queue_numbers
from pydantic import PostgresDsn, ValidationError

from tests.support.sagas import Order, add_step, flow


def service(**more: Any) -> Milepost:
    urgent = Saga("urgent", version=1, input=Order, key=lambda o: o.id, priority=Priority.HIGH)
    report = Saga("report", version=1, input=Order, key=lambda o: o.id, queue="reports")
    for saga in (urgent, report):
        add_step(saga, "it")
        flow(saga)
    settings = Settings(database_url=PostgresDsn("postgresql://u@h/d"), **more)
    return Milepost("shop", sagas=[urgent, report], settings=settings)


def test_numbers_are_read_by_queue() -> None:
    assert queue_numbers("") == {}
    assert queue_numbers(" reports=4, default = 200 ,") == {"reports": 4, "default": 200}


@pytest.mark.parametrize(
    "text", ["reports", "=4", "reports=", "reports=-1", "reports=four", "a=1,a=2", "a=¹"]
)
def test_what_is_no_number_of_a_queue_is_refused(text: str) -> None:
    with pytest.raises(ValidationError, match="queue"):
        Settings(database_url=PostgresDsn("postgresql://u@h/d"), queue_concurrency=text)


def test_a_tenth_is_reserved_where_runs_of_high_priority_come() -> None:
    assert plan(service(), ["default", "reports"]) == {"default": Plan(100, 10), "reports": Plan(100, 0)}
    few = service(step_concurrency=3)
    assert plan(few, ["default"])["default"] == Plan(3, 1)
    one = service(step_concurrency=1)
    assert plan(one, ["default"])["default"] == Plan(1, 0)


def test_settings_override_single_queues() -> None:
    it = service(queue_concurrency="reports=4", queue_reserved="default=20")
    assert plan(it, ["default", "reports"]) == {"default": Plan(100, 20), "reports": Plan(4, 0)}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (
            {"queue_concurrency": "report=4"},
            "MILEPOST_QUEUE_CONCURRENCY: queue report: unknown. Known: default, rep",
        ),
        ({"queue_reserved": "x=4"}, "MILEPOST_QUEUE_RESERVED: queue x: unknown"),
        ({"queue_concurrency": "reports=0"}, "queue reports has 0 slots"),
        ({"queue_reserved": "default=100"}, "queue default has 100 slots, 100 of them reserved"),
    ],
)
def test_numbers_that_cannot_be_meant_stop_the_start(more: dict[str, str], words: str) -> None:
    with pytest.raises(StartError, match=f"MP207 {words}"):
        plan(service(**more), ["default", "reports"])


def test_topics_exist_for_the_priorities_that_can_come() -> None:
    assert lane_topics(service()) == [
        "shop.work.default.high",
        "shop.work.default",
        "shop.compensation.default.high",
        "shop.compensation.default",
        "shop.work.reports",
        "shop.compensation.reports",
    ]
