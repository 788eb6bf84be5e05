"""Make `build/venv` with the locked packages and this project in it, unless it is there already.

Runs with the standard library only, since nothing is installed yet. Two at once are safe: the second waits for the
first and then finds the work done.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
VENV = BUILD / "venv"
LOCK = ROOT / "requirements.lock"
PROJECT = ROOT / "pyproject.toml"

# What would let pip, or the Python it starts, look or install outside the new environment.
STRANGERS = (
    "PYTHONPATH",
    "PYTHONHOME",
    "PYTHONUSERBASE",
    "VIRTUAL_ENV",
    "PIP_TARGET",
    "PIP_PREFIX",
    "PIP_USER",
    "PIP_REQUIRE_VIRTUALENV",
    "PIP_CONSTRAINT",
)


def bring_up_to_date() -> None:
    """Make the environment anew when lock, Python or folder changed; put the project in when it changed.

    Raises:
        SystemExit: a part failed; its own words stand above.
    """
    packages = _key(LOCK.read_bytes(), sys.version.encode(), str(ROOT).encode())
    project = _key(packages.encode(), PROJECT.read_bytes())
    if not _noted("packages", packages):
        print("environment: making build/venv from requirements.lock (once, about a minute)", flush=True)
        _make()
        _note("packages", packages)
    if not _noted("project", project):
        _pip("--no-deps", "--no-build-isolation", "-e", str(ROOT))
        _note("project", project)
        print("environment: ready", flush=True)


def _key(*parts: bytes) -> str:
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def _noted(name: str, key: str) -> bool:
    note = VENV / f"{name}.key"
    return note.exists() and note.read_text() == key


def _note(name: str, key: str) -> None:
    (VENV / f"{name}.key").write_text(key)


def _make() -> None:
    shutil.rmtree(VENV, ignore_errors=True)
    try:
        venv.EnvBuilder(with_pip=True, symlinks=True).create(VENV)
    except subprocess.CalledProcessError as error:
        raise SystemExit(
            "environment: this Python cannot make virtual environments. Install its venv and pip modules "
            "(Debian and Ubuntu: the package python3-venv), or name another: make PYTHON=python3.12 …"
        ) from error
    _pip("--require-hashes", "--no-deps", "-r", str(LOCK))


def _pip(*arguments: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in STRANGERS}
    command = [str(VENV / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "-q", "install"]
    done = subprocess.run([*command, *arguments], cwd=ROOT, env=environment, check=False)
    if done.returncode:
        raise SystemExit(f"environment: pip failed with exit code {done.returncode}; its words stand above")


def link() -> None:
    """Let `build/path/milepost` hold links to the rooms and the root's modules.

    mypy does not read the finder of an editable install. A single link to the root would lead it into `build/`.
    """
    folder = BUILD / "path" / "milepost"
    folder.mkdir(parents=True, exist_ok=True)
    packages: list[str] = tomllib.loads(PROJECT.read_text())["tool"]["setuptools"]["packages"]
    rooms = {name.split(".")[1] for name in packages if "." in name}
    names = rooms | {file.name for file in ROOT.glob("*.py")} | {"py.typed"}
    for old in folder.iterdir():
        if old.name not in names:
            old.unlink()
    for name in names:
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(Path("../../..") / name)


def main() -> None:
    """Bring the environment up to date."""
    BUILD.mkdir(exist_ok=True)
    with (BUILD / "venv.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        bring_up_to_date()
        link()


if __name__ == "__main__":
    main()
