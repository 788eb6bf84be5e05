"""Planned faults: in which order they strike, how often, and that a probe is left alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from milepost import Refused
from milepost.testing.faults import Faults, WorkerDied

HERE = ("order/1", "charge")


def call(name: str = "charge", *, settling: bool = False, probe: object = None) -> Any:
    """Return what `around` looks at of a call."""
    return SimpleNamespace(
        definition=SimpleNamespace(id="order/1"),
        step=SimpleNamespace(name=name),
        is_settling=settling,
        node=SimpleNamespace(probe=probe),
    )


class Called:
    """A user's function that counts."""

    def __init__(self) -> None:
        self.times = 0

    async def __call__(self) -> str:
        self.times += 1
        return "done"


async def test_nothing_planned_calls() -> None:
    assert await Faults().around(call(), Called()) == "done"


async def test_a_refusal_comes_instead_of_the_call_and_stays() -> None:
    faults, act = Faults(), Called()
    faults.refuse(HERE, "CLOSED", None)
    for _ in range(3):
        with pytest.raises(Refused, match="CLOSED"):
            await faults.around(call(), act)
    assert act.times == 0
    assert await faults.around(call("other"), act) == "done"


async def test_a_refusal_with_times_ends_and_can_be_taken_back() -> None:
    faults, act = Faults(), Called()
    faults.refuse(HERE, "CLOSED", 1)
    with pytest.raises(Refused):
        await faults.around(call(), act)
    assert await faults.around(call(), act) == "done"
    faults.refuse(HERE, "CLOSED", None)
    faults.refuse(HERE, "CLOSED", 0)
    assert await faults.around(call(), act) == "done"


async def test_a_lost_reply_comes_after_the_call() -> None:
    faults, act = Faults(), Called()
    faults.lose(HERE, 1)
    faults.lose(HERE, 1)
    for _ in range(2):
        with pytest.raises(TimeoutError):
            await faults.around(call(), act)
    assert await faults.around(call(), act) == "done"
    assert act.times == 3


async def test_a_call_that_raises_loses_no_reply() -> None:
    faults, act = Faults(), Called()
    faults.lose(HERE, 1)

    async def wrong() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await faults.around(call(), wrong)
    with pytest.raises(TimeoutError):
        await faults.around(call(), act)


async def test_crashes_strike_before_after_and_after_the_record_each_once() -> None:
    faults, act = Faults(), Called()
    faults.crash(HERE, "before")
    faults.crash(HERE, "after_effect")
    faults.crash(HERE, "after_record")
    with pytest.raises(WorkerDied):
        await faults.around(call(), act)
    assert act.times == 0
    with pytest.raises(WorkerDied):
        await faults.around(call(), act)
    assert act.times == 1
    assert await faults.around(call(), act) == "done"
    with pytest.raises(WorkerDied):
        faults.recorded(HERE)
    faults.recorded(HERE)


def test_no_user_code_catches_the_death_of_its_process() -> None:
    assert not issubclass(WorkerDied, Exception)


async def test_a_probe_is_left_alone_and_a_settling_repeat_is_not() -> None:
    faults, act = Faults(), Called()
    faults.refuse(HERE, "CLOSED", None)
    assert await faults.around(call(settling=True, probe=object()), act) == "done"
    with pytest.raises(Refused):
        await faults.around(call(settling=True), act)
