"""The wheel and the editable install work in an environment that has nothing of this one but its dependencies."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.house import ROOT, copy_to, folder_of, packages, sources

FRESH = {
    name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_", "MILEPOST_"))
}


def run(*command: str | Path, where: Path) -> str:
    """Run a program outside the repository; its output must say why when it fails."""
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=where, env=FRESH, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="session")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project in a folder whose name is no Python name."""
    return copy_to(tmp_path_factory.mktemp("clone") / "x-y")


@pytest.fixture(scope="session")
def wheel(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the copy."""
    dist = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--wheel", "-o", dist, ".", where=clone)
    (built,) = dist.glob("milepost-*.whl")
    return built


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A new environment's folder. A path file lends it this one's packages; this one's own milepost stays unseen."""
    folder = tmp_path / "env"
    venv.EnvBuilder(symlinks=True).create(folder)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    lent = folder / "lib" / version / "site-packages" / "lent.pth"
    lent.write_text(sysconfig.get_path("purelib") + "\n")
    return folder


@pytest.fixture
def install(environment: Path, tmp_path: Path) -> Callable[..., None]:
    """Installs something into the new environment, without dependencies."""

    def do(*what: str | Path) -> None:
        pip = (
            sys.executable,
            "-m",
            "pip",
            "--python",
            environment / "bin" / "python",
            "--disable-pip-version-check",
        )
        run(
            *pip,
            "install",
            "-q",
            "--no-deps",
            "--no-build-isolation",
            "--ignore-installed",
            *what,
            where=tmp_path,
        )

    return do


IMPORT_ALL = """
import importlib, pkgutil, milepost
for name in milepost.__all__:
    getattr(milepost, name)
for found in pkgutil.walk_packages(milepost.__path__, "milepost."):
    if not found.name.startswith(("milepost.examples.", "milepost.tests")):
        importlib.import_module(found.name)
print(milepost.__file__)
"""


def check_it_works(environment: Path, home: Path, where: Path) -> None:
    """The command answers, every module finds its files, and the package comes from where it should."""
    assert "migrate" in run(environment / "bin" / "milepost", "--help", where=where)
    found = run(environment / "bin" / "python", "-W", "error", "-c", IMPORT_ALL, where=where)
    assert Path(found.strip()).resolve().is_relative_to(home.resolve())


def test_the_wheel_installs_and_runs(
    wheel: Path, environment: Path, install: Callable[..., None], tmp_path: Path
) -> None:
    install(wheel)
    check_it_works(environment, environment, tmp_path)


def test_the_editable_install_runs_from_the_clone(
    clone: Path, environment: Path, install: Callable[..., None], tmp_path: Path
) -> None:
    install("-e", clone)
    check_it_works(environment, clone, tmp_path)


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if not name.partition("/")[0].endswith(".dist-info")}
    wanted = {
        f"milepost/{path.as_posix()}"
        for path in sources()
        if path.suffix in {".py", ".sql", ".xml", ".typed"} and path.parts[0] not in {"tests", ".ci", "docs"}
    }
    assert {
        "milepost/py.typed",
        "milepost/schemas/sql/schema.sql",
        "milepost/devstack/kafka.pom.xml",
    } <= wanted
    assert held == wanted


def test_every_folder_with_modules_is_a_listed_package() -> None:
    folders = {
        path.parent for path in sources() if path.suffix == ".py" and path.parts[0] not in {"tests", ".ci"}
    }
    assert {folder_of(package).relative_to(ROOT) for package in packages()} == folders
