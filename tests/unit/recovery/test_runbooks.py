"""Every drift has a runbook, every command in it is one, and its front matter is YAML that says the same."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from milepost.console.main import app
from milepost.recovery.model import Drift
from milepost.recovery.permissions import Act
from milepost.recovery.runbooks import parse, runbook, runbooks
from typer.main import get_command

from tests.support.house import ROOT

FILES = {path.stem: path for path in (ROOT / "recovery" / "runbooks").glob("*.md")}


def test_there_is_one_for_each_drift_and_no_other() -> None:
    assert [book.drift for book in runbooks()] == list(Drift)
    assert FILES.keys() == {drift.value.lower() for drift in Drift}


@pytest.mark.parametrize("drift", Drift)
def test_its_front_matter_is_the_yaml_that_it_looks_like(drift: Drift) -> None:
    book = runbook(drift)
    front = yaml.safe_load(book.text.split("---\n")[1])
    for key, value in front.items():
        own = getattr(book, key)
        assert (list(own) if isinstance(own, tuple) else own) == value, key
    assert book.checks and book.manual and book.safe and book.body


@pytest.mark.parametrize("drift", Drift)
def test_every_command_in_it_exists_with_its_options(drift: Drift) -> None:
    named = runbook(drift).commands
    assert named
    for line in named:
        words = line.split()[1:]
        command: Any = getattr(get_command(app), "commands", {}).get(words[0])
        if len(words) > 1 and words[1] in getattr(command, "commands", {}):
            command = command.commands[words[1]]
        assert command is not None, line
        assert len(words) == 1 or command.params, f"{line}: it names no command of {words[0]}"
        options = {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
        assert set(re.findall(r"--[a-z][a-z-]+", line)) <= options, line


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("safe:\n  - reconcile", "safe:\n  - skip"), "no safe act"),
        (("safe:\n  - reconcile", "safe:\n  - frob"), "frob"),
        (("drift: WORKER_LOST", "drift: FROB"), "FROB"),
        (("rollback:", "rolback:"), "has to have"),
        (("---\ndrift", "drift"), "no front matter"),
    ],
)
def test_one_that_is_not_whole_is_refused(change: tuple[str, str], words: str) -> None:
    text = runbook(Drift.WORKER_LOST).text
    with pytest.raises(ValueError, match=words):
        parse(text.replace(*change), "it.md")


def test_what_may_be_offered_beside_it_is_safe() -> None:
    offered = {act for book in runbooks() for act in book.safe}
    assert {Act.RECONCILE, Act.RETRY, Act.REDRIVE} <= offered
