"""What a person grants with a retry: `--budget tokens=5000 --budget runtime=10m`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

from ..sagas.budgets import NAMES, written
from ..schemas.errors import UsageError
from ..schemas.settings import parse_duration

_WHOLE = frozenset({"attempts", "tokens", "tool_calls", "steps"})


def read_grants(given: Sequence[str]) -> Any:
    """Read grants as they are stored with the request; None for none.

    Raises:
        UsageError: MP635 for one that cannot be read.
    """
    found: dict[str, Decimal] = {}
    for text in given:
        name, _, amount = (part.strip() for part in text.partition("="))
        value = _amount(name, amount) if name in NAMES and name not in found else None
        if value is None:
            raise UsageError(
                "MP635",
                f"--budget {text}: write NAME=AMOUNT, each name once, with an amount above 0: tokens=5000, cost=2.50, "
                f"runtime=10m. Names: {', '.join(NAMES)}.",
            )
        found[name] = value
    return written(found) or None


def _amount(name: str, text: str) -> Decimal | None:
    if name == "runtime":
        found = parse_duration(text)
        return (
            Decimal(str(found.total_seconds()))
            if isinstance(found, timedelta) and found > timedelta(0)
            else None
        )
    try:
        value = Decimal(text)
    except InvalidOperation:
        return None
    whole = value.is_finite() and value > 0 and (name not in _WHOLE or value == int(value))
    return value if whole else None
