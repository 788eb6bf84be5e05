"""The quickstart passes mypy --strict, and each wrong program is refused where it says so."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TypeAlias

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PROGRAMS = sorted((HERE / "wrong").glob("*.py"))
SAID = re.compile(r"^(?P<file>[^:]+):(?P<line>\d+): error: .*\[(?P<code>[a-z-]+)\]$", re.MULTILINE)
EXPECTED = re.compile(r"# expect: (?P<codes>[a-z-]+(?:, [a-z-]+)*)$")

#: File, line and code of an error.
Refusal: TypeAlias = tuple[str, int, str]


@pytest.fixture(scope="module")
def refusals(tmp_path_factory: pytest.TempPathFactory) -> list[Refusal]:
    """What mypy --strict says about all programs at once, with the package on its path as users have it."""
    where = tmp_path_factory.mktemp("mypy")
    (where / "milepost").symlink_to(ROOT, target_is_directory=True)
    options = ["--strict", "--config-file=", "--python-version=3.11", f"--cache-dir={where / 'cache'}"]
    options += ["--explicit-package-bases", "--namespace-packages", "--follow-imports=silent"]
    words = ["--no-error-summary", "--hide-error-context", "--no-pretty"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, *words, "quickstart", "wrong"],
        cwd=HERE,
        env={"MYPYPATH": f"{HERE / 'quickstart'}:{HERE / 'wrong'}:{where}", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    found = [(error["file"], int(error["line"]), error["code"]) for error in SAID.finditer(done.stdout)]
    assert len(found) == done.stdout.count(": error: "), done.stdout
    return sorted(found)


def test_the_quickstart_passes(refusals: list[Refusal]) -> None:
    assert [error for error in refusals if error[0].startswith("quickstart/")] == []


def expected(program: Path) -> list[Refusal]:
    """What a program says about itself; a line may be refused for several reasons."""
    lines = enumerate(program.read_text().splitlines(), 1)
    found = [(number, EXPECTED.search(line)) for number, line in lines]
    codes = [(number, code) for number, match in found if match for code in match["codes"].split(", ")]
    return sorted((f"wrong/{program.name}", number, code) for number, code in codes)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.stem)
def test_a_wrong_program_is_refused(program: Path, refusals: list[Refusal]) -> None:
    wanted = expected(program)
    assert bool(wanted) == (program.stem != "base"), "a wrong program says what it expects"
    assert [error for error in refusals if error[0] == f"wrong/{program.name}"] == wanted
