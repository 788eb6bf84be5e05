"""Ages of what waits, as one look at the database has seen them, and what of it somebody should see. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ..schemas.states import Risk
from .age_bounds import Bounds, Level
from .age_kinds import KINDS, Kind


@dataclass(frozen=True, slots=True)
class Age:
    """The oldest rows of one kind, of one workflow where they belong to one.

    Attributes:
        what: Name of its kind.
        amount: How many, as far as was counted.
        seconds: Age of the oldest; None where there is none.
        severity: Of the workflow, or the kind's own.
        first: The oldest, for people: "order/o-1 charge_card".
        tenant: The oldest one's.
        run: The oldest one's run, if it belongs to one.
        more: There are more than were counted.
    """

    what: str
    amount: int = 0
    seconds: float | None = None
    service: str = ""
    saga: str = ""
    severity: Risk = Risk.MEDIUM
    first: str = ""
    tenant: str = ""
    run: str = ""
    more: bool = False

    @property
    def kind(self) -> Kind:
        """What it is an age of."""
        return KINDS[self.what]

    @property
    def bounds(self) -> Bounds:
        """From when it matters."""
        return self.kind.bounds[self.severity]

    @property
    def level(self) -> Level:
        """How bad it is."""
        return self.bounds.level(self.seconds)


@dataclass(frozen=True, slots=True)
class Seen:
    """What one look at the database has seen.

    Attributes:
        ages: Of every kind at least one, worst or empty.
        live: Runs that have not ended, by service, saga and state, as far as counted.
        workers: Processes that hold their lease, by service.
        resumed: Runs that a person let go on in the last day, by service, saga and what has become of them.
        days: Days for which partitions are there, by table.
        severities: Of each saga that is known, by service and saga.
    """

    ages: tuple[Age, ...]
    live: Mapping[tuple[str, str, str], int] = field(default_factory=dict)
    workers: Mapping[str, int] = field(default_factory=dict)
    resumed: Mapping[tuple[str, str, str], int] = field(default_factory=dict)
    days: Mapping[str, int] = field(default_factory=dict)
    severities: Mapping[tuple[str, str], Risk] = field(default_factory=dict)


_LEVELS: tuple[Level, ...] = ("ok", "warning", "error")


def worst(ages: Iterable[Age]) -> Age | None:
    """Return the age to be told of several of one kind: the worst, of those the most severe, then the oldest."""
    ranks = list(Risk)
    return max(
        ages,
        key=lambda age: (_LEVELS.index(age.level), ranks.index(age.severity), age.seconds or 0.0),
        default=None,
    )


def troubles(ages: Iterable[Age]) -> list[Age]:
    """Return what somebody should see and what does not stand in front of a person anyway, the worst first."""
    ranks = list(Risk)
    found = [age for age in ages if age.kind.listed and age.level != "ok"]
    return sorted(
        found,
        key=lambda age: (_LEVELS.index(age.level), ranks.index(age.severity), age.seconds or 0.0),
        reverse=True,
    )
