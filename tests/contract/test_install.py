"""The wheel and the editable install work in an environment that has nothing of this one but its dependencies."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

from tests.support.house import ROOT, folder_of, packages, run, sources

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
    rooms = {package.split(".")[1] for package in packages() if "." in package}
    wanted = {
        f"milepost/{path.as_posix()}"
        for path in sources()
        if path.name != "README.md"
        and (path.parts[0] in rooms or (len(path.parts) == 1 and path.suffix in {".py", ".typed"}))
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
