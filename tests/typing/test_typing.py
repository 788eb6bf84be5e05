"""The quickstart passes mypy --strict, and each wrong program is refused where it says so."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SAID = re.compile(r"^(?P<file>[^:]+):(?P<line>\d+): error: .*\[(?P<code>[a-z-]+)\]$", re.MULTILINE)
EXPECTED = re.compile(r"# expect: (?P<codes>[a-z-]+(?:, [a-z-]+)*)$")


def mypy(folder: Path, where: Path) -> str:
    """Run mypy --strict over the programs of a folder, with the package on its path as users have it."""
    path = where / "path"
    path.mkdir()
    (path / "milepost").symlink_to(ROOT, target_is_directory=True)
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--no-error-summary",
        "--hide-error-context",
        "--no-pretty",
    ]
    command += [
        "--config-file",
        "",
        "--explicit-package-bases",
        "--namespace-packages",
        "--follow-imports=silent",
    ]
    command += ["--python-version", "3.11", "--cache-dir", str(where / "cache"), "."]
    environment = {"MYPYPATH": f"{folder}:{path}", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout


def test_the_quickstart_passes(tmp_path: Path) -> None:
    assert mypy(HERE / "quickstart", tmp_path) == ""


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, int, str]]:
    """What mypy says about all wrong programs at once: file, line and code of each error."""
    said = mypy(HERE / "wrong", tmp_path_factory.mktemp("wrong"))
    errors = [(found["file"], int(found["line"]), found["code"]) for found in SAID.finditer(said)]
    assert len(errors) == said.count(": error: "), said
    return sorted(errors)


def expected(program: Path) -> list[tuple[str, int, str]]:
    """What a program says about itself; a line may be refused for several reasons."""
    lines = enumerate(program.read_text().splitlines(), 1)
    found = [(number, EXPECTED.search(line)) for number, line in lines]
    codes = [(number, code) for number, match in found if match for code in match["codes"].split(", ")]
    return sorted((program.name, number, code) for number, code in codes)


PROGRAMS = sorted((HERE / "wrong").glob("*.py"))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.stem)
def test_a_wrong_program_is_refused(program: Path, refused: list[tuple[str, int, str]]) -> None:
    wanted = expected(program)
    assert bool(wanted) == (program.stem != "base"), "a wrong program says what it expects"
    assert [error for error in refused if error[0] == program.name] == wanted
