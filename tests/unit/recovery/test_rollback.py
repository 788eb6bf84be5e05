"""A release is taken back without asking on stated conditions, and on these alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as some
from milepost import Action, HealthCheck, Level, RollbackRules, Signs, Traffic, roll_back_plan
from milepost.recovery.rollback import reasons_to_roll_back

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def checks(pattern: str, *, api: str = "", every: int = 20, ago: int = 0) -> tuple[HealthCheck, ...]:
    """Checks up to now, "x" failed and "." did not, the last one the youngest; seconds."""
    last = len(pattern) - 1
    return tuple(
        HealthCheck(at=NOW - timedelta(seconds=ago + (last - n) * every), ok=mark == ".", api=api)
        for n, mark in enumerate(pattern)
    )


@pytest.mark.parametrize(
    ("signs", "reasons"),
    [
        (Signs(checks=checks("xx.")), 1),
        (Signs(checks=checks("xx..")), 0),  # half is not over half
        (Signs(checks=checks("xx")), 0),  # too few to say
        (Signs(checks=checks("xxxxx", ago=301)), 0),  # older than five minutes
        (Signs(checks=(*checks("xxx", ago=310), *checks("..."))), 0),
        (Signs(traffic=Traffic(requests=100, server_errors=20)), 0),  # a fifth is not over a fifth
        (Signs(traffic=Traffic(requests=100, server_errors=21)), 1),
        (Signs(traffic=Traffic(requests=3, server_errors=3)), 0),
        (Signs(checks=checks("xxx", api="bank")), 1),
        (Signs(checks=checks("xx.", api="bank")), 0),
        (Signs(checks=checks("xx.xx", api="bank")), 0),
        (Signs(checks=(*checks("xx", api="bank"), *checks("xx", api="carrier"))), 0),  # each for itself
        (
            Signs(
                checks=(*checks("xxx", api="bank"), *checks("...")),
                traffic=Traffic(requests=50, server_errors=40),
            ),
            2,
        ),
        (Signs(), 0),
    ],
)
def test_the_conditions(signs: Signs, reasons: int) -> None:
    found = reasons_to_roll_back(signs, NOW)
    assert len(found) == reasons, found
    plan = roll_back_plan(signs, NOW)
    expected = (Action.ROLLBACK, Level.BOUNDED_REPAIR) if reasons else (Action.NONE, Level.DETECT)
    assert (plan.action, plan.level) == expected


def test_anything_else_waits_for_a_person() -> None:
    plan = roll_back_plan(Signs(checks=checks("x.")), NOW, wanted="the smoke test failed")
    assert (plan.action, plan.level, plan.reason) == (
        Action.ROLLBACK,
        Level.APPROVAL,
        "the smoke test failed",
    )


@given(
    failed=some.integers(0, 40),
    well=some.integers(0, 40),
    part=some.floats(0, 1),
    least=some.integers(0, 50),
)
def test_never_below_what_the_rules_say(failed: int, well: int, part: float, least: int) -> None:
    rules = RollbackRules(health_failures=part, least_checks=least)
    signs = Signs(checks=checks("x" * failed + "." * well, every=1))
    found = bool(reasons_to_roll_back(signs, NOW, rules))
    total = failed + well
    assert found == (total >= max(least, 1) and failed > part * total)
