"""Installations of the project in environments of their own."""

from __future__ import annotations

import sys
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.house import copy_to, run


@pytest.fixture(scope="session")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project in a folder whose name is no Python name."""
    return copy_to(tmp_path_factory.mktemp("clone") / "x-y")


@pytest.fixture(scope="session")
def wheel(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the source archive of the copy."""
    dist = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "-o", dist, ".", where=clone)
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
