"""The package under test is loaded once, under its own name."""

from __future__ import annotations

import sys
from pathlib import Path

import milepost

ROOT = Path(__file__).resolve().parents[2]


def strangers() -> dict[str, str]:
    """Return the loaded modules that come from a room or the root and are not called milepost."""
    found = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if not file or not Path(file).resolve().is_relative_to(ROOT):
            continue
        first = Path(file).resolve().relative_to(ROOT).parts[0]
        if first not in {"build", "tests", ".ci"} and name.partition(".")[0] != "milepost":
            found[name] = file
    return found


def test_no_module_of_the_package_is_loaded_under_a_second_name() -> None:
    assert Path(milepost.__file__ or "").resolve() == ROOT / "__init__.py"
    assert strangers() == {}
