"""Acts of persons at the command line, carried out by a running service; what counts is the other side's ledger."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import pytest_asyncio

from tests.support import servers
from tests.support.apps.ledger import Job, chain, never, parcel, safe
from tests.support.apps.ledger_stage import Stage, staged
from tests.support.person import Person, person, request_of
from tests.support.process import served
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(
    postgres_server: servers.DatabaseServer, database_template: str, kafka_server: servers.MessageServer
) -> AsyncIterator[Stage]:
    """The ledger's service with one process of all roles, for every test here."""
    prefix = f"t{secrets.token_hex(5)}"
    with servers.fresh_database(postgres_server, database_template) as url:
        async with staged(url, kafka_server.bootstrap, prefix) as stage:
            async with served(stage.env(LEDGER_WAIT=100)):
                yield stage


@pytest.fixture
def ann(
    stage: Stage, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Person:
    return person(stage.url, capsys, monkeypatch, tmp_path)


async def ends(stage: Stage, run: UUID, state: str, *effects: str) -> None:
    """Wait until a run has ended, and compare the ledger."""
    await stage.resting([run], within=60)
    assert await stage.state(run) == state, await stage.story(run)
    assert await stage.effects(run) == list(effects), await stage.story(run)


async def in_front_of_persons(ann: Person) -> list[dict[str, Any]]:
    """Return the worklist without what merely stands still, such as an event that a busy relay sends late."""
    return [line for line in (await ann("worklist")).lines if line["kind"] != "trouble"]


async def test_what_waits_for_a_person_is_decided_at_the_command_line(
    stage: Stage, ann: Person, tmp_path: Path
) -> None:
    await stage.fault("mark", "act", "after", "raise")  # it has happened, and nobody knows
    for name in ("again", "skip"):
        await stage.fault(name, "act", "before", "raise")  # it has not, and nobody knows
    await stage.fault("back", "close", "before", "refuse")
    await stage.fault("undone", "three", "before", "refuse")
    await stage.fault("undone", "undo two", "before", "refuse")
    mark, again, skip = [await stage.start(never, name) for name in ("mark", "again", "skip")]
    back, undone = await stage.start(parcel, "back"), await stage.start(chain, "undone")
    await stage.deliver("back")
    for run in (mark, again, skip):
        await stage.step_is(run, "never_act", "MANUAL_REQUIRED")
    await stage.step_is(back, "close", "MANUAL_REQUIRED")
    await stage.step_is(undone, "undo_two", "COMPENSATION_FAILED")

    listed = await in_front_of_persons(ann)
    assert {(line["kind"], line["run"], line["step"], line["code"]) for line in listed} == {
        ("step", "never/mark", "never_act", "OUTCOME_UNKNOWN"),
        ("step", "never/again", "never_act", "OUTCOME_UNKNOWN"),
        ("step", "never/skip", "never_act", "OUTCOME_UNKNOWN"),
        ("tx", "parcel/back", "close", "TOLD_TO"),
        ("undo", "chain/undone", "undo_two", "TOLD_TO"),
    }
    (undo,) = (await ann("worklist", "--kind", "undo")).lines
    assert (undo["undo_of"], undo["possible"]) == ("two", ["retry", "skip", "mark-succeeded"])

    await ann.refused(stage, mark, "resume", "never/mark", words="in the way is never_act")
    await ann.refused(stage, again, "retry", "never/again", "never_act", words="may have taken effect")
    result = tmp_path / "result.json"
    result.write_text('{"number": "no number"}')
    marking = ("mark-succeeded", "never/mark", "never_act", "--result", str(result))
    await ann.refused(stage, mark, *marking, words="no Done")
    result.write_text('{"number": 7}')

    done = await ann("runs", *marking, "--reason", "the bank's list has it", json_lines=False)
    assert (done.status, done.lines[0]["text"]) == (
        0,
        "never/mark never_act: mark-succeeded accepted: never_act SUCCEEDED, run RUNNING",
    )
    await ann.accepted("retry", "never/again", "never_act", "--did-not-happen")
    await ann.accepted("skip", "never/skip", "never_act", "--did-not-happen")
    await ann.accepted("compensate", "parcel/back")
    await ann.accepted("retry", "chain/undone", "undo_two")
    await ends(stage, mark, "SUCCEEDED", "act", "next")
    await ends(stage, again, "SUCCEEDED", "act", "next")
    await ends(stage, skip, "SUCCEEDED", "next")
    await ends(stage, back, "COMPENSATED", "pay", "send", "call back", "repay")
    await ends(stage, undone, "COMPENSATED", "one", "two", "undo two", "undo one")
    assert await stage.calls(mark, "act") == 1 and await stage.calls(again, "act") == 1
    assert (await stage.step(mark, "never_act"))["result"] == '{"number": 7}'
    await ann.refused(stage, mark, "retry", "never/mark", "never_act", words="ended as SUCCEEDED")
    assert await in_front_of_persons(ann) == []

    (shown,) = (await ann("runs", "show", "never/mark", "--history")).lines
    (entry,) = [line for line in shown["history"] if line["event"].startswith("act.")]
    assert (entry["event"], entry["step"], entry["data"]) == (
        "act.mark_succeeded",
        "never_act",
        {"by": "ann", "reason": "the bank's list has it"},
    )
    assert [(asked["act"], asked["outcome"]) for asked in shown["requests"]] == [
        *(("resume", "refused"), ("mark-succeeded", "refused")),
        *(("mark-succeeded", "accepted"), ("retry", "refused")),
    ]
    people = await ann("runs", "show", "never/mark", "--history", json_lines=False)
    assert any("retry" in line["text"] and "ended as SUCCEEDED" in line["text"] for line in people.lines)
    acts = await stage.pool.fetch(
        "SELECT act, actor FROM milepost.audit WHERE act LIKE 'run.%' AND outcome = 'DONE' ORDER BY id"
    )
    assert [row["act"].removeprefix("run.") for row in acts] == [
        *("mark_succeeded", "retry", "skip", "compensate", "retry"),
    ]
    assert {row["actor"] for row in acts} == {"ann"}


async def test_a_cancel_undoes_or_not_as_it_was_asked_and_says_what_was_done(
    stage: Stage, ann: Person
) -> None:
    await stage.fault("busy", "next", "before", "hold")
    stop, keep = [await stage.start(parcel, name) for name in ("stop", "keep")]
    busy = await stage.start(safe, "busy")
    for run in (stop, keep):
        await stage.step_is(run, "arrived", "WAITING")
    await stage.reached("busy", "next", "before")
    line = await ann.accepted("cancel", "parcel/stop", "--undo")
    assert "done: 2 steps (pay, send)" in line["answer"]
    line = await ann.accepted("cancel", "parcel/keep", "--no-undo")
    assert line["answer"] == "CANCELLED; done: 2 steps (pay, send)"
    line = await ann.accepted("cancel", "safe/busy", "--no-undo")
    assert line["answer"] == "CANCEL_REQUESTED; done: 1 step (safe_act); under way: safe_next"
    await stage.release("busy", "next", "before")
    await ends(stage, stop, "COMPENSATED", "pay", "send", "call back", "repay")
    await ends(stage, keep, "CANCELLED", "pay", "send")
    await ends(stage, busy, "CANCELLED", "act", "next")
    await _racing(stage)


async def _racing(stage: Stage) -> None:
    """Cancel runs while they complete: one of the two wins, and the answer says which."""
    runs = []
    for n in range(12):
        async with stage.pool.acquire() as connection, connection.transaction():
            runs.append(await stage.service.start(connection, safe, Job(name=f"race-{n}")))
            if n < 6:
                await stage.service.cancel(connection, runs[n], undo=True, by="ann", reason="race")
    for run in runs[6:]:
        await stage.step_is(run.id, "safe_act", "RUNNING", "SUCCEEDED")
        async with stage.pool.acquire() as connection, connection.transaction():
            await stage.service.cancel(connection, run, undo=True, by="ann", reason="race")
    ids = [run.id for run in runs]
    await stage.resting(ids, within=60)

    async def all_answered() -> bool:
        return not await stage.pool.fetchval("SELECT count(*) FROM milepost.request WHERE state = 'OPEN'")

    await until(all_answered, within=60, what="answers")
    for each in ids:
        row, state, effects = (
            await request_of(stage, each),
            await stage.state(each),
            await stage.effects(each),
        )
        if row["state"] == "ACCEPTED":
            assert state == "CANCELLED" and effects in ([], ["act"], ["act", "next"]), await stage.story(each)
        else:
            assert (state, effects) == ("SUCCEEDED", ["act", "next"]), await stage.story(each)
            assert row["answer"] == "the run was faster: it has ended as SUCCEEDED"
        acts = [event for event in await stage.history(each) if event == "act.cancel"]
        assert len(acts) == (row["state"] == "ACCEPTED")
