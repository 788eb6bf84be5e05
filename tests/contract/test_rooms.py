"""The arrows between the rooms: they hold, and a breach of each contract is caught."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.house import ROOT, copy_to

BREACHES = [
    ("Lower rooms never import higher ones", "schemas/ids.py", "from ..streams import queries"),
    ("Lower rooms never import higher ones", "outbox/model.py", "from ..inbox import consumer"),
    ("The saga engine knows only contracts", "sagas/model.py", "from ..streams import queries"),
    ("Pure modules import no IO", "sagas/retry.py", "import random"),
    ("Pure modules import no IO", "outbox/model.py", "import asyncio"),
    (
        "Examples see the public face, and the local servers",
        "examples/shop/saga.py",
        "from ...schemas import ids",
    ),
]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A copy of the project in a folder whose name is no Python name, and the package's path beside it."""
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "milepost").symlink_to(tmp_path / "x-y")
    return copy_to(tmp_path / "x-y")


def lint(clone: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter on a copy."""
    command = [
        sys.executable,
        "-c",
        "from importlinter.cli import lint_imports_command; lint_imports_command()",
    ]
    environment = os.environ | {"PYTHONPATH": str(clone.parent / "path")}
    return subprocess.run(
        [*command, "--no-cache"], cwd=clone, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(("contract", "name", "breach"), BREACHES)
def test_a_breach_is_caught(contract: str, name: str, breach: str, clone: Path) -> None:
    file = clone / name
    lines = file.read_text().splitlines()
    after = lines.index("from __future__ import annotations") + 1
    file.write_text("\n".join([*lines[:after], breach, *lines[after:], ""]))
    done = lint(clone)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"{contract} BROKEN" in done.stdout


def test_without_a_breach_all_contracts_hold(clone: Path) -> None:
    done = lint(clone)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len({contract for contract, *_ in BREACHES})} kept, 0 broken" in done.stdout


def test_every_room_is_in_the_layers() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    layers = text.partition("layers = [")[2].partition("]")[0]
    named = set(layers.replace('"', " ").replace("|", " ").replace(",", " ").split())
    rooms = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"examples"}
    assert named == rooms
