"""What a run, or one try of a step, may spend."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal

from .errors import StateError


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits of what is spent; None is no limit.

    On a saga it counts for the whole run, on a step for each try. In a context it is what is left.

    Attributes:
        attempts: Tries of all steps of a run. Not on a step: that is `retry`.
        runtime: Time that tries, probes and undos have run, added up.
        tokens: As `ctx.spend` says.
        cost: As `ctx.spend` says, in whatever currency the service uses everywhere.
        tool_calls: As `ctx.spend` says.
        steps: Steps that a run begins, each round of a loop anew. Not on a step.
    """

    attempts: int | None = None
    runtime: timedelta | None = None
    tokens: int | None = None
    cost: Decimal | None = None
    tool_calls: int | None = None
    steps: int | None = None


class BudgetExceeded(StateError):
    """MP360: more was spent than the try or its run may spend; the step ends in front of a person."""
