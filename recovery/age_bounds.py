"""From what age on something that waits matters, by how severe its workflow is. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ..schemas.states import Risk

Level: TypeAlias = Literal["ok", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Ages in seconds: from when it is worth a look, and from when it is an error."""

    warning: float
    error: float

    def level(self, seconds: float | None) -> Level:
        """Judge an age; None is that of nothing."""
        if seconds is None or seconds < self.warning:
            return "ok"
        return "error" if seconds >= self.error else "warning"


def same(warning: float, error: float) -> Mapping[Risk, Bounds]:
    """Return bounds in seconds that hold for every severity."""
    return dict.fromkeys(Risk, Bounds(warning, error))


def rising(
    critical: tuple[float, float],
    high: tuple[float, float],
    medium: tuple[float, float],
    low: tuple[float, float],
) -> Mapping[Risk, Bounds]:
    """Return bounds in seconds, as (warning, error), for each severity."""
    given = zip(reversed(Risk), (critical, high, medium, low), strict=True)
    return {severity: Bounds(*bounds) for severity, bounds in given}
