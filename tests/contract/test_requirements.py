"""docs/requirements.md has every requirement once, and each place that it names is there."""

from __future__ import annotations

import re

import pytest

from tests.support.house import ROOT
from tests.support.places import commands, targets

GROUPS = {"I": 9, "R": 5, "U": 9, "S": 18, "K": 6, "O": 7, "W": 9, "F": 18}
SCENARIOS, INTERLEAVINGS = (
    (31, 32, 33, 35, 37, 38, 39, 40, 42, 43, 44, 57),
    (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16),
)
IDS = [
    *(f"{group}{number}" for group, last in GROUPS.items() for number in range(1, last + 1)),
    *(f"scenario {number}" for number in SCENARIOS),
    *(f"interleaving {number}" for number in INTERLEAVINGS),
]
ROW = re.compile(r"^\| *([A-Z]\d+|scenario \d+|interleaving \d+) *\| *(.+?) *\| *(.+?) *\|$", re.M)
ROWS = ROW.findall((ROOT / "docs" / "requirements.md").read_text())
PLACE = re.compile(r"`([^`]+)`")


def gap(place: str) -> str | None:
    """Return what is wrong with a place: a test file, `file::test`, `make target` or `milepost command`."""
    program, _, rest = place.partition(" ")
    if program == "make":
        return None if rest in targets() else "no such target"
    if program == "milepost":
        return None if rest in commands() else "no such command"
    name, _, test = place.partition("::")
    file = ROOT / name
    if not name.startswith("tests/") or not file.is_file():
        return "no such test file"
    if test and not re.search(rf"^(async )?def {test}\b|^class {test}\b", file.read_text(), re.M):
        return "no such test in it"
    return None


def test_every_requirement_is_there_exactly_once() -> None:
    assert sorted(identity for identity, _, _ in ROWS) == sorted(IDS)


@pytest.mark.parametrize(("identity", "shown"), [(identity, shown) for identity, _, shown in ROWS])
def test_its_places_are_there_or_it_says_not_yet(identity: str, shown: str) -> None:
    places = PLACE.findall(shown)
    assert places or shown.startswith("not yet"), f"{identity} names no place and does not say 'not yet'"
    assert {place: gap(place) for place in places if gap(place)} == {}
