"""Recorded histories of released definitions keep their outcome; `python -m tests.support.histories` adds new ones."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from milepost.schemas.options import Retry

from tests.support.histories import FOLDER, Recorder, examples, recordings, replayed

DEFINITIONS = {(definition.name, definition.version): definition for definition in examples()}
FILES = sorted(FOLDER.glob("*.json"))


def history_of(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_keeps_its_outcome(path: Path) -> None:
    history = history_of(path)
    definition = DEFINITIONS.get((history["saga"], history["version"]))
    assert definition is not None, "a released definition stays as long as runs of it may be open"
    assert definition.shape == history["shape"], "a released shape stays; another one is a new version"
    assert replayed(definition, history) == history["outcome"]


def test_every_definition_is_recorded_in_every_way() -> None:
    wanted = {name for definition in DEFINITIONS.values() for name, _ in recordings(definition)}
    assert wanted <= {path.name for path in FILES}, "run python -m tests.support.histories"


def test_the_recordings_come_to_different_ends() -> None:
    ends = {history_of(path)["outcome"]["state"] for path in FILES}
    assert {"SUCCEEDED", "COMPENSATED"} <= ends


def test_a_change_that_alters_an_outcome_is_found() -> None:
    """Policy may change for new work; that it changes what recorded facts led to is what the recordings are for."""
    definition = DEFINITIONS["order", 1]
    first = definition.nodes[0]
    history = Recorder(definition, "retry", first.name).record()
    assert replayed(definition, history) == history["outcome"]
    hasty = replace(first, retry=Retry(attempts=1))
    altered = replace(definition, nodes=(hasty, *definition.nodes[1:]))
    assert replayed(altered, history) != history["outcome"]
