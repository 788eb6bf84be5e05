"""docs/kit.md names each method of the kit, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from milepost.testing import Kit

PAGE = Path(__file__).parents[2] / "docs" / "kit.md"


def test_each_method_is_on_the_page() -> None:
    rows = [line.split("|")[1] for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    told = {name for row in rows for name in re.findall(r"`(\w+)\(", row)}
    assert told == {name for name in dir(Kit) if not name.startswith("_")}
