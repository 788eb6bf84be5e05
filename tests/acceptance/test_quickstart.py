"""The quickstart as it is written down: its tests pass, the refund that waits for a person among them."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from tests.support.house import ROOT, run

GIVEN = ROOT / "tests" / "typing" / "quickstart"


def test_its_tests_pass(tmp_path: Path) -> None:
    folder = tmp_path / "quickstart"
    shutil.copytree(GIVEN, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "pyproject.toml").write_text(
        '[tool.pytest.ini_options]\nasyncio_mode = "auto"\npythonpath = ["."]\n'
    )
    nowhere = "postgresql://nobody@127.0.0.1:1/nothing"
    said = run(sys.executable, "-m", "pytest", "tests", where=folder, MILEPOST_DATABASE_URL=nowhere)
    assert "2 passed" in said
