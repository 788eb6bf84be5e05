"""What the documents point at is there, and they speak of the project only."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.house import ROOT, project, sources
from tests.support.places import commands, targets

LINK = re.compile(r"\[[^\]]+\]\((?!https?://)([^)#]+)")
HOSTS = re.compile("|".join(["py" + "pi", "python" + "hosted", "npm" + "js", r"proxy\.go" + "lang"]), re.I)
DOCUMENTS = [path for path in sources() if path.suffix == ".md"]


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_links_lead_somewhere(document: Path) -> None:
    folder = (ROOT / document).parent
    missing = [link for link in LINK.findall((ROOT / document).read_text()) if not (folder / link).exists()]
    assert missing == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_make_targets_it_names_exist(document: Path) -> None:
    named = set(re.findall(r"(?:`|^\$ )make ([a-z]+)", (ROOT / document).read_text(), re.M))
    assert named <= targets()


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_commands_it_names_exist(document: Path) -> None:
    words = re.findall(
        r"(?:`|^\$ |&& )milepost ([a-z]+(?: [a-z][a-z-]*)?)", (ROOT / document).read_text(), re.M
    )
    known = commands()
    assert [word for word in words if word not in known and word.split()[0] not in known - {"runs"}] == []


@pytest.mark.parametrize("target", sorted(targets()))
def test_help_lists_every_target(target: str) -> None:
    done = subprocess.run(["make", "-s"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert re.search(rf"^make {target} +\S", done.stdout, re.M)


def test_no_file_names_a_registry_host() -> None:
    found = [
        f"{path}: {line.strip()[:80]}"
        for path in sources()
        if path.suffix in {".py", ".md", ".toml", ".yml", ".sh", ".sql", ".lock", ".xml", ""}
        for line in (ROOT / path).read_text().splitlines()
        if HOSTS.search(line)
    ]
    assert found == []


def test_the_changelog_has_an_entry_for_what_is_coming_or_for_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    assert "## [Unreleased]" in text or f"## [{project()['project']['version']}]" in text
    assert set(re.findall(r"^### (\w+)", text, re.M)) <= {
        "Added",
        "Changed",
        "Deprecated",
        "Removed",
        "Fixed",
        "Security",
    }


def test_the_tiers_of_tests_are_the_folders() -> None:
    told = set(re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "testing.md").read_text(), re.M))
    folders = {path.parts[1] for path in sources() if path.parts[0] == "tests" and len(path.parts) > 2}
    assert told == folders - {"support"}
