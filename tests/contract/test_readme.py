"""The README's quickstart, word for word: types hold against the installed wheel, and its test passes."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.house import ROOT, run

GIVEN = ROOT / "tests" / "typing" / "quickstart"
BLOCK = re.compile(r"^```python\n# ((?:shop|tests)/\S+\.py).*?\n(.*?)^```$", re.M | re.S)


@pytest.fixture
def quickstart(tmp_path: Path) -> Path:
    """The folder in which a reader of the README has written what it says, beside clients and tables of their own."""
    folder = tmp_path / "quickstart"
    shutil.copytree(GIVEN, folder, ignore=shutil.ignore_patterns("__pycache__"))
    blocks = dict(BLOCK.findall((ROOT / "README.md").read_text()))
    assert blocks.keys() == {
        "shop/contracts.py",
        "shop/edges.py",
        "shop/sagas/order.py",
        "shop/service.py",
        "tests/test_order.py",
    }
    for name, text in blocks.items():
        (folder / name).write_text(text)
    (folder / "pyproject.toml").write_text(
        '[tool.pytest.ini_options]\nasyncio_mode = "auto"\npythonpath = ["."]\n'
    )
    return folder


def test_it_type_checks_against_the_installed_wheel(
    quickstart: Path, wheel: Path, environment: Path, install: Callable[..., None]
) -> None:
    install(wheel)
    python = environment / "bin" / "python"
    mypy = (sys.executable, "-m", "mypy", "--strict", "--explicit-package-bases", "--config-file=")
    said = run(*mypy, "--python-executable", python, "shop", "tests", where=quickstart)
    assert "Success: no issues found" in said


def test_its_test_passes(
    quickstart: Path, wheel: Path, environment: Path, install: Callable[..., None]
) -> None:
    install(wheel)
    python = environment / "bin" / "python"
    nowhere = "postgresql://nobody@127.0.0.1:1/nothing"
    said = run(python, "-m", "pytest", "tests", where=quickstart, MILEPOST_DATABASE_URL=nowhere)
    assert "2 passed" in said
