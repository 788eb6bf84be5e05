"""What runs rest on: equal parts have an equal fingerprint, and every difference shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from milepost import Context, DefinitionError, Repeat, Saga, UsageError, context_hash
from milepost.sagas.definition import Definition
from milepost.sagas.fingerprints import differing, of_input
from pydantic import BaseModel


class Task(BaseModel):
    task: str = "t"
    commit: str = "c"
    mode: str | None = None


def definition(fingerprint: Any, *, version: int = 1, step: str = "act", name: str = "ai") -> Definition:
    """A saga of one step."""
    saga = Saga(name, version=version, input=Task, key=lambda task: task.task, fingerprint=fingerprint)

    @saga.step(repeat=Repeat.SAFE, name=step)
    async def act(ctx: Context[Task]) -> None: ...

    saga.flow(act)
    return saga.definition


def digest(definition: Definition, **given: Any) -> bytes:
    """The fingerprint of an input."""
    found = of_input(definition, Task(**given))
    assert found is not None
    return found.sha256


def test_equal_parts_are_equal_and_any_difference_is_another_run() -> None:
    one = definition(lambda t: {"commit": t.commit, "mode": t.mode})
    other = definition(lambda t: {"mode": t.mode, "commit": t.commit})
    same = digest(one, task="1")
    assert digest(one, task="2") == same, "what is not declared does not count"
    assert digest(other) == same, "nor does the order of the parts"
    different = [
        digest(one, commit="d"),
        digest(one, mode="fast"),
        digest(definition(lambda t: {"commit": t.commit, "mode": t.mode, "prompt": 1})),
        digest(definition(lambda t: {"commit": t.commit, "mode": t.mode}, version=2)),
        digest(definition(lambda t: {"commit": t.commit, "mode": t.mode}, step="other")),
        digest(definition(lambda t: {"commit": t.commit, "mode": t.mode}, name="ai2")),
    ]
    assert len({same, *different}) == 1 + len(different)
    assert of_input(definition(None), Task()) is None


@pytest.mark.parametrize(
    "wrong",
    [
        lambda t: {},
        lambda t: None,
        lambda t: {"a": [1]},
        lambda t: {1: "a"},
        lambda t: {"a": "\0"},
        lambda t: t.no,
    ],
)
def test_what_cannot_be_compared_is_refused(wrong: Any) -> None:
    with pytest.raises(UsageError, match="MP368"):
        of_input(definition(wrong), Task())


def test_a_fingerprint_is_a_function() -> None:
    with pytest.raises(DefinitionError, match="MP128"):
        definition("commit")


def test_differing_parts_are_named() -> None:
    assert differing({"a": 1, "b": None, "c": 3}, {"a": 1, "c": 4, "d": 5}) == ["b", "c", "d"]
    assert differing({"a": 1}, {"a": 1}) == []


def test_a_context_is_what_its_files_hold_under_their_names(tmp_path: Path) -> None:
    def tree(name: str, **files: str) -> Path:
        root = tmp_path / name
        for file, text in files.items():
            path = root / file.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return root

    one = tree("one", task="do it", rules__a="a", rules__b="b", other="x")
    two = tree("two", task="do it", rules__a="a", rules__b="b")
    same = context_hash("task", "rules", root=one)
    assert context_hash("rules", one / "task", "rules/a", root=one) == same
    assert context_hash("task", "rules", root=two) == same, "in every checkout"
    (two / "rules/b").write_text("c")
    assert context_hash("task", "rules", root=two) != same
    (two / "rules/b").rename(two / "rules/c")
    (two / "rules/c").write_text("b")
    assert context_hash("task", "rules", root=two) != same, "a name counts"
    assert context_hash("task", root=one) != same
    with pytest.raises(FileNotFoundError):
        context_hash("none", root=one)
    with pytest.raises(ValueError, match="subpath"):
        context_hash(tmp_path / "two/task", root=one)
