"""Scenario 37: a run is cancelled, and again while it is undone, and its process is stopped or killed meanwhile.

An undo is never cancelled: all that was done is undone, in reverse order, once.
"""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from tests.support.apps.ledger import WORDS, chain
from tests.support.apps.ledger_stage import Stage, staged
from tests.support.person import Person, person
from tests.support.process import served

DONE = list(WORDS[:4])
UNDONE = [f"undo {word}" for word in reversed(DONE)]


@pytest.fixture
def ann(
    database_url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Person:
    return person(database_url, capsys, monkeypatch, tmp_path)


async def cancelled(stage: Stage, ann: Person) -> UUID:
    """Cancel a run in the middle of its fourth step, which then ends."""
    await stage.fault("held", "four", "after", "hold")
    await stage.fault("held", "undo three", "before", "hold")
    run = await stage.start(chain, "held")
    await stage.reached("held", "four", "after")
    line = await ann.accepted("cancel", "chain/held", "--undo")
    assert line["outcome"] == "accepted"
    await stage.release("held", "four", "after")
    return run


@pytest.mark.parametrize("how", ["stopped", "killed"])
async def test_what_was_cancelled_is_undone_to_the_end(
    database_url: str, kafka: str, topic_prefix: str, ann: Person, how: str
) -> None:
    async with staged(database_url, kafka, topic_prefix) as stage:
        env = stage.env(MILEPOST_GRACE="1s")
        async with served(env) as (process,):
            run = await cancelled(stage, ann)
            await stage.reached("held", "undo three", "before")
            await ann.refused(stage, run, "cancel", "chain/held", "--undo", words="undone")
            await (process.stop() if how == "stopped" else process.kill())
        await stage.release("held", "undo three", "before")
        assert await stage.effects(run) == [*DONE, "undo four"], await stage.story(run)
        async with served(env):
            assert await stage.resting([run], within=60) == {"COMPENSATED": 1}
        assert await stage.effects(run) == [*DONE, *UNDONE], await stage.story(run)
