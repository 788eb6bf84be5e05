"""What is decided about each drift, by default and otherwise; nothing is decided by age alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from milepost import Action, Drift, Level, Observation, Plan
from milepost.recovery.model import CAN
from milepost.recovery.policies import DEFAULTS, Policies, nothing, settled
from milepost.schemas.states import StepState

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
SERVED = {"workers": True, "under_way": 0, "overtaken": False, "limited": False, "handed_over": False}


def seen(drift: Drift, *, age: timedelta = HOUR, **more: Any) -> Observation:
    values: dict[str, Any] = {
        "subject": "r:pay",
        "label": "order/o-1 pay",
        "observed": "1",
        "state": "PENDING",
    }
    return Observation(drift=drift, since=NOW - age, now=NOW, **(values | more))


FLAGS = (*SERVED, "matched", "letters", "recoverable", "overdue")
CASES = {
    "lost worker": (seen(Drift.WORKER_LOST), Action.RETRY, Level.SAFE_RETRY),
    "idle queue": (seen(Drift.NOT_TOLD, evidence=SERVED), Action.RESUME, Level.SAFE_RETRY),
    "overtaken": (
        seen(Drift.NOT_TOLD, evidence=SERVED | {"under_way": 9, "overtaken": True}),
        Action.RESUME,
        Level.SAFE_RETRY,
    ),
    "backlog": (seen(Drift.NOT_TOLD, evidence=SERVED | {"under_way": 9}), Action.NONE, Level.DETECT),
    "limited": (seen(Drift.NOT_TOLD, evidence=SERVED | {"limited": True}), Action.NONE, Level.DETECT),
    "handed over": (seen(Drift.NOT_TOLD, evidence=SERVED | {"handed_over": True}), Action.NONE, Level.DETECT),
    "not sent": (seen(Drift.NOT_TOLD, evidence=SERVED | {"outbox_behind": True}), Action.NONE, Level.DETECT),
    "in vain": (seen(Drift.NOT_TOLD, evidence=SERVED | {"in_vain": True}), Action.ESCALATE, Level.PERSON),
    "unserved": (seen(Drift.NOT_TOLD, evidence=SERVED | {"workers": False}), Action.ESCALATE, Level.PERSON),
    "just deployed": (
        seen(Drift.NOT_TOLD, age=timedelta(seconds=40), evidence={"workers": False}),
        Action.NONE,
        Level.DETECT,
    ),
    "matched": (seen(Drift.SIGNAL_PRESENT, evidence={"matched": True}), Action.RESUME, Level.SYNCHRONISE),
    "never matched": (seen(Drift.SIGNAL_PRESENT, evidence={"matched": False}), Action.ESCALATE, Level.PERSON),
    "asked about": (seen(Drift.UNKNOWN, age=timedelta(minutes=9)), Action.NONE, Level.DETECT),
    "long unknown": (seen(Drift.UNKNOWN), Action.ESCALATE, Level.PERSON),
    "a person asks": (seen(Drift.UNKNOWN, asked=True), Action.RETRY, Level.SAFE_RETRY),
    "failed undo": (seen(Drift.UNDO_STOPPED, state="COMPENSATION_FAILED"), Action.ESCALATE, Level.PERSON),
    "untold undo": (
        seen(Drift.UNDO_STOPPED, state="COMPENSATION_PENDING", step="refund", evidence=SERVED),
        Action.RESUME,
        Level.SAFE_RETRY,
    ),
    "undone no further": (seen(Drift.UNDO_STOPPED, state="COMPENSATING"), Action.RESUME, Level.SAFE_RETRY),
    "letter": (seen(Drift.LETTER_OPEN, evidence={"recoverable": True}), Action.RETRY, Level.APPROVAL),
    "dead for good": (
        seen(Drift.LETTER_OPEN, evidence={"recoverable": False}),
        Action.ESCALATE,
        Level.PERSON,
    ),
    "held": (seen(Drift.KEY_HELD, evidence={"letters": True}), Action.NONE, Level.DETECT),
    "held by nobody": (
        seen(Drift.KEY_HELD, evidence={"letters": False}),
        Action.RELEASE_LOCK,
        Level.BOUNDED_REPAIR,
    ),
    "outbox": (seen(Drift.OUTBOX_BEHIND, evidence={"relay": False}), Action.ESCALATE, Level.PERSON),
    "parked": (seen(Drift.OUTBOX_PARKED), Action.ESCALATE, Level.PERSON),
    "old wait": (seen(Drift.WAIT_OLD, age=timedelta(days=90)), Action.NONE, Level.DETECT),
    "overdue wait": (seen(Drift.WAIT_OLD, evidence={"overdue": True}), Action.ESCALATE, Level.PERSON),
    "lock": (seen(Drift.LOCK_LEFT), Action.RELEASE_LOCK, Level.SYNCHRONISE),
    "inspected": (seen(Drift.INSPECTED), Action.ESCALATE, Level.PERSON),
}


@pytest.mark.parametrize("case", CASES)
def test_by_default(case: str) -> None:
    one, action, level = CASES[case]
    plan = Policies().plan(one)
    assert (plan.action, plan.level) == (action, level) and plan.reason


def test_every_drift_has_a_default_and_a_case() -> None:
    assert DEFAULTS.keys() == CAN.keys() == set(Drift) == {one.drift for one, _, _ in CASES.values()}


def test_a_policy_is_replaced_for_a_saga_and_for_all() -> None:
    def own(one: Observation) -> Plan:
        return nothing("of order")

    def every(one: Observation) -> Plan:
        return nothing("of all")

    policies = Policies(given={(Drift.WORKER_LOST, "order"): own, (Drift.WORKER_LOST, None): every})
    plans = [policies.plan(seen(Drift.WORKER_LOST, saga=saga)).reason for saga in ("order", "parcel", None)]
    assert plans == ["of order", "of all", "of all"]
    assert policies.plan(seen(Drift.UNKNOWN, asked=True)).action is Action.RETRY


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, "no Plan"),
        (Plan(Action.RELEASE_LOCK, Level.SYNCHRONISE, "x"), "cannot be done"),
        (Plan(Action.RETRY, Level.PERSON, "mine"), "mine"),
    ],
)
def test_what_cannot_be_done_is_told_to_persons(answer: Any, words: str) -> None:
    plan = Policies(given={(Drift.WORKER_LOST, None): lambda one: answer}).plan(seen(Drift.WORKER_LOST))
    assert plan.action is Action.ESCALATE and words in plan.reason


def test_a_policy_that_raises_is_told_to_persons() -> None:
    def wrong(one: Observation) -> Plan:
        raise KeyError("x")

    plan = Policies(given={(Drift.WORKER_LOST, None): wrong}).plan(seen(Drift.WORKER_LOST))
    assert plan.action is Action.ESCALATE and "KeyError" in plan.reason


def test_a_repair_that_moved_nothing_is_not_repeated() -> None:
    again = seen(Drift.WORKER_LOST, repaired_at=NOW - timedelta(seconds=20))
    in_vain = seen(Drift.WORKER_LOST, repaired_at=NOW - timedelta(minutes=20))
    assert Policies().plan(again).action is Action.NONE
    assert Policies().plan(in_vain).action is Action.ESCALATE


@pytest.mark.parametrize("level", Level)
def test_levels_say_what_goes_by_itself(level: Level) -> None:
    policies = Policies(levels={"bold": Level.PERSON, "shy": Level.DETECT})
    plan = Plan(Action.RETRY, level, "")
    alone = {
        saga: policies.alone(seen(Drift.WORKER_LOST, saga=saga), plan)
        for saga in ("bold", "shy", "usual", None)
    }
    assert alone == {"bold": level <= 3, "shy": level <= 0, "usual": level <= 2, None: level <= 2}


@given(
    drift=some.sampled_from(Drift),
    state=some.sampled_from([state.value for state in StepState]),
    days=some.integers(0, 4000),
    flags=some.dictionaries(
        some.sampled_from([*SERVED, "matched", "letters", "recoverable", "overdue"]), some.booleans()
    ),
    asked=some.booleans(),
)
def test_every_observation_has_a_plan_that_can_be_carried_out(
    drift: Drift, state: str, days: int, flags: dict[str, bool], asked: bool
) -> None:
    one = seen(drift, state=state, age=timedelta(days=days), evidence=flags, asked=asked)
    plan = Policies().plan(one)
    assert plan.action in CAN[drift] | {Action.NONE, Action.ESCALATE}
    assert plan == settled(one, plan)
    if drift not in {Drift.UNKNOWN, Drift.NOT_TOLD, Drift.UNDO_STOPPED}:
        young = Policies().plan(seen(drift, state=state, age=timedelta(0), evidence=flags, asked=asked))
        assert young == plan, "its age changes nothing"
