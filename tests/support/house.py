"""The project's own files, for tests about how it is built and what it says."""

from __future__ import annotations

import os
import subprocess
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FRESH = {
    name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_", "MILEPOST_"))
}


def project() -> dict[str, Any]:
    """Return pyproject.toml as data."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def packages() -> list[str]:
    """Return the names of the packages that are installed."""
    listed: list[str] = project()["tool"]["setuptools"]["packages"]
    return listed


def folder_of(package: str) -> Path:
    """Return where a package lies in the repository."""
    return ROOT.joinpath(*package.split(".")[1:])


def sources() -> list[Path]:
    """Return the files that belong to the project, as git would take them: tracked, or new and not ignored.

    Returns:
        Paths relative to the root.
    """
    command = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\0")
    return sorted(Path(name) for name in listed if name and (ROOT / name).is_file())


def copy_to(folder: Path) -> Path:
    """Copy the project's files, as a clone would have them.

    Args:
        folder: where to; is made.

    Returns:
        The folder.
    """
    for name in sources():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((ROOT / name).read_bytes())
    return folder


def run(*command: str | Path, where: Path, **variables: str) -> str:
    """Run a program that knows nothing of this environment's variables.

    Args:
        where: the folder it runs in.
        variables: what it gets beside the rest.

    Returns:
        What it wrote to stdout.

    Raises:
        AssertionError: it failed; the end of its output is in it.
    """
    words = [str(word) for word in command]
    done = subprocess.run(
        words, cwd=where, env=FRESH | variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout
