"""When a release is taken back without asking: on stated conditions and on these alone. Pure.

Everything else that speaks for a rollback is proposed, and a person decides. A policy of an inspection may use it:

    return roll_back_plan(signs, now, wanted="smoke test failed")
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from ..schemas.states import Level
from .model import Action, Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthCheck:
    """One look at a health page, or one call of an API that the release needs.

    Attributes:
        at: When it was made, timezone-aware.
        ok: Whether it was as it should be.
        api: Name of the API that was called; '' for the health page.
    """

    at: datetime
    ok: bool
    api: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What a release has answered in the same span.

    Attributes:
        requests: How many.
        server_errors: How many of them with a status of 500 to 599.
    """

    requests: int = 0
    server_errors: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackRules:
    """When a release is taken back without asking.

    Attributes:
        span: How far back health checks count.
        health_failures: More than this part of them failed; from `least_checks` on.
        server_errors: More than this part of all answers were 5xx; from `least_requests` on.
        required_failures: So many calls of one required API in a row failed within the span, up to the last one.
    """

    span: timedelta = timedelta(minutes=5)
    health_failures: float = 0.5
    least_checks: int = 3
    server_errors: float = 0.2
    least_requests: int = 20
    required_failures: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Signs:
    """What is known of a release."""

    checks: Sequence[HealthCheck] = field(default_factory=tuple)
    traffic: Traffic = Traffic()


USUAL = RollbackRules()


def reasons_to_roll_back(signs: Signs, now: datetime, rules: RollbackRules = USUAL) -> tuple[str, ...]:
    """Return which of the conditions hold, in words; none means that nothing is taken back without asking."""
    recent = [check for check in signs.checks if now - rules.span < check.at <= now]
    return (*_health(recent, rules), *_answers(signs.traffic, rules), *_required(recent, rules))


def _health(recent: Sequence[HealthCheck], rules: RollbackRules) -> tuple[str, ...]:
    pages = [check for check in recent if not check.api]
    failed = sum(not check.ok for check in pages)
    if len(pages) < max(rules.least_checks, 1) or failed <= rules.health_failures * len(pages):
        return ()
    return (f"{failed} of {len(pages)} health checks failed within {_minutes(rules.span)}",)


def _answers(traffic: Traffic, rules: RollbackRules) -> tuple[str, ...]:
    many = traffic.requests >= max(rules.least_requests, 1)
    if not many or traffic.server_errors <= rules.server_errors * traffic.requests:
        return ()
    return (f"{traffic.server_errors} of {traffic.requests} answers were 5xx",)


def _required(recent: Sequence[HealthCheck], rules: RollbackRules) -> tuple[str, ...]:
    found: list[str] = []
    for api in sorted({check.api for check in recent if check.api}):
        calls = sorted((check for check in recent if check.api == api), key=lambda check: check.at)
        in_a_row = next((n for n, check in enumerate(reversed(calls)) if check.ok), len(calls))
        if in_a_row >= max(rules.required_failures, 1):
            found.append(f"{api}, which it needs, failed {in_a_row} times in a row")
    return tuple(found)


def _minutes(span: timedelta) -> str:
    return f"{span.total_seconds() / 60:g} minutes"


def roll_back_plan(signs: Signs, now: datetime, rules: RollbackRules = USUAL, *, wanted: str = "") -> Plan:
    """Return what is to be done about a release.

    Args:
        now: Timezone-aware.
        wanted: What else speaks for a rollback; alone it is proposed and waits for a person.

    Returns:
        ROLLBACK at BOUNDED_REPAIR, which may go by itself, when a condition holds; at APPROVAL when something else
        speaks for it; else NONE.
    """
    reasons = reasons_to_roll_back(signs, now, rules)
    if reasons:
        return Plan(Action.ROLLBACK, Level.BOUNDED_REPAIR, "; ".join(reasons), {"rules": list(reasons)})
    if wanted:
        return Plan(Action.ROLLBACK, Level.APPROVAL, wanted)
    return Plan(Action.NONE, Level.DETECT, "nothing speaks for a rollback")
