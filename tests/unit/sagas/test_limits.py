"""Rate limits: who goes first, several at once, and what it means for a step to be put off."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from milepost import DefinitionError, Milepost
from milepost.consumers.gates import check_limits
from milepost.sagas.facts import Limited
from milepost.sagas.limiting import Limit, Window, ask
from milepost.schemas.options import Repeat
from milepost.schemas.states import Priority, RunState, StepState

from tests.support.sagas import NOW, SECOND, Play, add_step, flow, new_saga

ONE = Limit(name="bank", calls=1, per=SECOND)
TWO = Limit(name="mail", calls=2, per=SECOND)


class Desk:
    """Windows that are kept."""

    def __init__(self, *limits: Limit) -> None:
        self.limits = limits
        self.windows = {limit.name: Window() for limit in limits}

    def ask(self, at: datetime = NOW, **more: Any) -> datetime | None:
        changed, later = ask(self.limits, self.windows, at, **more)
        self.windows.update(changed)
        return later


def test_equals_are_let_through_as_they_came_and_high_before_them() -> None:
    desk = Desk(ONE)
    assert desk.ask() is None
    first, second = desk.ask(priority=Priority.LOW), desk.ask(priority=Priority.LOW)
    assert first is not None
    assert second is not None
    assert second - first == SECOND * 17 / 16
    soon = first + SECOND / 100
    assert desk.ask(soon, priority=Priority.LOW) is not None, "who comes later does not go before who waits"
    assert desk.ask(soon, priority=Priority.HIGH) is None, "except of a higher priority"


def test_a_call_counts_for_all_its_limits_or_for_none() -> None:
    desk = Desk(ONE, TWO)
    assert desk.ask() is None
    assert desk.ask() is not None, "the bank refuses"
    assert sum(desk.windows["mail"].spent.values()) == 1, "so nothing was used of the other"


def test_a_closed_limit_lets_nobody_through_before() -> None:
    desk = Desk(TWO)
    desk.windows["mail"] = Window(closed_until=NOW + 5 * SECOND)
    assert desk.ask(priority=Priority.HIGH) == NOW + 5 * SECOND
    assert desk.ask(NOW + 5 * SECOND, appointed=True) is None


def test_a_step_that_is_put_off_waits_and_uses_up_no_try() -> None:
    saga = new_saga()
    add_step(saga, "pay", Repeat.ASK_FIRST, undo=True, probe=True)
    add_step(saga, "ship")
    play = Play(flow(saga))
    until = NOW + 90 * SECOND
    play.send(Limited("pay", until, "bank"))
    step = play.step("pay")
    assert (step.state, step.wake_at, step.limited_until) == (StepState.PENDING, until, until)
    assert (step.attempt, step.nudges, play.run.state) == (0, 0, RunState.PENDING)
    decision = play.wake("pay")
    assert [work.step for work in decision.work] == ["pay"], "announced when its time has come"
    claimed = play.claim("pay")
    assert (claimed.attempt, claimed.limited_until) == (1, None)
    play.send(Limited("pay", play.now + SECOND, "bank"))
    assert play.last.answer == "ignored", "somebody has it"


def test_probes_and_undos_are_put_off_too() -> None:
    saga = new_saga()
    add_step(saga, "pay", Repeat.ASK_FIRST, undo=True, probe=True)
    add_step(saga, "ship")
    play = Play(flow(saga))
    play.fail("pay", "unknown")
    play.send(Limited("pay", NOW + SECOND, "bank"))
    assert (play.state("pay"), play.step("pay").probes) == (StepState.UNKNOWN, 0)
    play = Play(flow_of_two())
    play.succeed("pay")
    play.fail("ship")
    play.send(Limited("undo_pay", NOW + SECOND, "bank"))
    assert play.state("undo_pay") is StepState.COMPENSATION_PENDING
    assert play.step("undo_pay").wake_at == NOW + SECOND


def flow_of_two() -> Any:
    saga = new_saga()
    add_step(saga, "pay", undo=True)
    add_step(saga, "ship")
    return flow(saga)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"calls": 0, "per": SECOND}, "calls=0 must be 1 or more"),
        ({"calls": 1, "per": timedelta(0)}, "between 0:00:00.001000 and 31 days"),
        ({"calls": 1, "per": timedelta(days=32)}, "between"),
    ],
)
def test_a_limit_that_cannot_be_meant_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(DefinitionError, match=rf"MP126 limit\('bank'\): .*{words}"):
        Milepost("shop").limit("bank", **options)


def test_a_limit_or_queue_that_nobody_declared_is_named() -> None:
    saga = new_saga()

    @saga.step(repeat=Repeat.SAFE, limits=["bank", "mail"])
    async def pay(ctx: Any) -> None: ...

    saga.flow(pay)
    service = Milepost("shop", sagas=[saga])
    service.limit("bank", calls=1, per=SECOND)
    with pytest.raises(
        DefinitionError, match=r"MP126 order v1, step pay: limits='mail' is no limit of service shop"
    ):
        check_limits(service)
    service.limit("mail", calls=1, per=SECOND, queue="nothing")
    with pytest.raises(
        DefinitionError, match=r"MP126 limit\('mail'\): no step uses queue 'nothing'. Known: default"
    ):
        check_limits(service)
    with pytest.raises(DefinitionError, match="declared twice"):
        service.limit("mail", calls=1, per=SECOND)
