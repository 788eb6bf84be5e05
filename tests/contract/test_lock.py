"""requirements.lock covers what pyproject.toml asks for, by hash, and the tests run on what it says."""

from __future__ import annotations

import re
from importlib import metadata
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.house import ROOT, project

TEXT = (ROOT / "requirements.lock").read_text()
ENTRY = re.compile(
    r"^(?P<line>[a-z0-9][^\\\n]*?) *\\\n(?P<hashes>(?: +--hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.M
)


def locked() -> dict[str, Requirement]:
    """Return the lock's entries by name."""
    entries = [Requirement(match["line"]) for match in ENTRY.finditer(TEXT)]
    return {canonicalize_name(entry.name): entry for entry in entries}


def asked() -> list[Requirement]:
    """Return what the project, its extras, its groups and its build ask for."""
    data: dict[str, Any] = project()
    lines: list[str] = [*data["build-system"]["requires"], *data["project"]["dependencies"]]
    for extra in data["project"]["optional-dependencies"].values():
        lines += extra
    for group in data["dependency-groups"].values():
        lines += [line for line in group if isinstance(line, str)]
    return [Requirement(line) for line in lines]


def test_nothing_in_the_lock_is_without_version_and_hash() -> None:
    lines = [line for line in TEXT.splitlines() if not line.lstrip().startswith("#")]
    entries = list(ENTRY.finditer(TEXT))
    assert len(entries) > 50
    assert len(lines) == sum(1 + match["hashes"].count("\n") for match in entries)
    for name, entry in locked().items():
        assert re.fullmatch(r"==[^,*]+", str(entry.specifier)), name


def test_the_lock_names_no_address() -> None:
    assert "://" not in TEXT
    assert not re.search(r"^\s*-(?!-hash)", TEXT, re.M)


def test_what_the_project_asks_for_is_locked_at_a_version_that_fits() -> None:
    entries = locked()
    for wanted in asked():
        (pin,) = entries[canonicalize_name(wanted.name)].specifier
        assert wanted.specifier.contains(pin.version, prereleases=True), f"{wanted}: run `make lock`"


def test_what_is_locked_is_complete_and_is_what_runs_here() -> None:
    entries = locked()
    for name, entry in entries.items():
        if entry.marker and not entry.marker.evaluate():
            continue
        (pin,) = entry.specifier
        assert metadata.version(name) == pin.version, f"{name}: make this environment with `make venv`"
        for line in metadata.requires(name) or []:
            needed = Requirement(line)
            if needed.marker and not needed.marker.evaluate({"extra": ""}):
                continue
            (found,) = entries[canonicalize_name(needed.name)].specifier
            assert needed.specifier.contains(found.version, prereleases=True), f"{name} needs {needed}"
