"""Options a user writes: how a step may be repeated, what follows a failure, how often to retry."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Generic, Literal, TypeAlias, TypeVar

from pydantic import BaseModel

R = TypeVar("R", bound=BaseModel | None)


class Repeat(Enum):
    """May the call of a step be repeated when its outcome is not known?"""

    SAFE = "safe"
    """The other side dedupes on ctx.idempotency_key: a timeout is retried."""
    ASK_FIRST = "ask_first"
    """A timeout is UNKNOWN; the probe is asked before any repeat (a probe is required)."""
    NEVER = "never"
    """A timeout is UNKNOWN and goes to a person."""


class Then(Enum):
    """What follows a failure or a timeout."""

    RETRY = "retry"
    RECONCILE = "reconcile"
    COMPENSATE = "compensate"
    FAIL = "fail"
    CANCEL = "cancel"
    CONTINUE = "continue"
    PERSON = "person"


OnFailure: TypeAlias = Literal[Then.COMPENSATE, Then.FAIL, Then.PERSON, Then.RETRY]
OnReject: TypeAlias = Literal[Then.COMPENSATE, Then.FAIL, Then.CONTINUE]
OnTimeout: TypeAlias = Literal[
    Then.RECONCILE, Then.RETRY, Then.CANCEL, Then.COMPENSATE, Then.CONTINUE, Then.PERSON
]


@dataclass(frozen=True, kw_only=True)
class Retry:
    """Bounded exponential backoff with full jitter.

    Attributes:
        attempts: Tries in all, the first included.
        first: Upper bound of the first delay.
        factor: Growth of that bound per try.
        cap: Largest bound.
        within: No try starts later than this after the first; None for no limit.

    Full jitter: https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
    """

    attempts: int = 5
    first: timedelta = timedelta(seconds=1)
    factor: float = 2.0
    cap: timedelta = timedelta(minutes=5)
    within: timedelta | None = timedelta(hours=1)


@dataclass(frozen=True)
class Found(Generic[R]):
    """The probe found the effect; `value` is the step's result."""

    value: R


@dataclass(frozen=True)
class Absent:
    """The probe found no effect: a retry candidate once `settle` has passed."""


@dataclass(frozen=True)
class InProgress:
    """The other side still works on it; asked again after `ask_again`."""

    ask_again: timedelta = timedelta(seconds=30)


@dataclass(frozen=True)
class Failed:
    """The other side says the call failed for good; `code` is its reason."""

    code: str


Probe: TypeAlias = Found[R] | Absent | InProgress | Failed
