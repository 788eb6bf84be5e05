"""Timers: for a while, until an instant, until a time of the day."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import pytest
from milepost.sagas.shapes import all_of
from milepost.schemas.errors import UsageError
from milepost.schemas.states import RunState, StepState
from milepost.schemas.wallclock import wall_clock

from tests.support.branches import Branches
from tests.support.sagas import HOUR, NOW, add_step, new_saga


def timed(due: Any) -> Branches:
    saga = new_saga()
    saga.flow(saga.timer("pause", due), add_step(saga, "after"))
    return Branches(saga.definition)


@pytest.mark.parametrize("due", [HOUR, lambda v: NOW + HOUR])
def test_the_run_goes_on_when_its_time_has_come(due: Any) -> None:
    play = timed(due)
    assert (play.state_now(), play.row("pause").wake_at) == (RunState.WAITING, NOW + HOUR)
    play.wake("pause")
    assert (play.state("pause"), play.open()) == (StepState.SUCCEEDED, {"after"})


def test_an_instant_that_has_passed_is_now() -> None:
    assert timed(lambda v: NOW - HOUR).row("pause").wake_at == NOW


@pytest.mark.parametrize("due", [lambda v: "soon", lambda v: datetime(2026, 3, 1), lambda v: 1 / 0])
def test_one_that_says_no_instant_goes_to_a_person(due: Any) -> None:
    play = timed(due)
    assert (play.state_now(), play.row("pause").code) == (RunState.MANUAL_REQUIRED, "DUE_FAILED")
    play.act("skip", "pause")
    assert play.open() == {"after"}


def test_a_person_may_have_it_asked_again() -> None:
    answers: list[Any] = ["soon", NOW + HOUR]
    play = timed(lambda v: answers.pop(0))
    play.act("retry", "pause")
    assert play.state_now() is RunState.WAITING


def test_one_beside_a_failure_is_ended() -> None:
    saga = new_saga()
    saga.flow(all_of(saga.timer("pause", HOUR), add_step(saga, "a")))
    play = Branches(saga.definition)
    play.fail("a")
    assert (play.state("pause"), play.state_now()) == (StepState.CANCELLED, RunState.FAILED)


BERLIN = "Europe/Berlin"
SPRING, AUTUMN = date(2026, 3, 29), date(2026, 10, 25)  # clocks are put forward at 02:00, back at 03:00


def utc(day: date, hour: int, minute: int = 0, second: int = 0) -> datetime:
    return datetime(day.year, day.month, day.day, hour, minute, second, tzinfo=UTC)


def test_a_time_of_the_day_is_that_of_its_zone() -> None:
    assert wall_clock(date(2026, 7, 1), time(9), BERLIN) == utc(date(2026, 7, 1), 7)
    assert wall_clock(date(2026, 1, 1), time(9), BERLIN) == utc(date(2026, 1, 1), 8)


def test_a_time_that_is_never_shown() -> None:
    assert wall_clock(SPRING, time(2, 30), BERLIN) == utc(SPRING, 1, 30)
    assert wall_clock(SPRING, time(2, 30), BERLIN, gap="before") == utc(SPRING, 0, 59, 59)


def test_a_time_that_is_shown_twice() -> None:
    assert wall_clock(AUTUMN, time(2, 30), BERLIN) == utc(AUTUMN, 0, 30)
    assert wall_clock(AUTUMN, time(2, 30), BERLIN, fold="second") == utc(AUTUMN, 1, 30)


def test_days_on_the_wall_are_23_to_25_hours() -> None:
    lengths = [
        wall_clock(day + timedelta(days=1), time(9), BERLIN) - wall_clock(day, time(9), BERLIN)
        for day in (SPRING - timedelta(days=1), date(2026, 6, 1), AUTUMN - timedelta(days=1))
    ]
    assert [length / HOUR for length in lengths] == [23, 24, 25]


@pytest.mark.parametrize("wrong", [("Europe/Nowhere", time(9)), ("", time(9)), (BERLIN, time(9, tzinfo=UTC))])
def test_what_is_no_time_of_a_zone(wrong: tuple[str, time]) -> None:
    with pytest.raises(UsageError) as raised:
        wall_clock(SPRING, wrong[1], wrong[0])
    assert raised.value.code == "MP390"
