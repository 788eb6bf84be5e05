"""What is asked for while nobody carries it out, or while whoever does is killed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from tests.support.apps.ledger import never, parcel
from tests.support.apps.ledger_stage import Stage, staged
from tests.support.person import Person, person, request_of
from tests.support.process import served
from tests.support.waiting import until


@pytest.fixture
async def stage(database_url: str, kafka: str, topic_prefix: str) -> AsyncIterator[Stage]:
    async with staged(database_url, kafka, topic_prefix) as stage:
        yield stage


@pytest.fixture
def ann(
    stage: Stage, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Person:
    return person(stage.url, capsys, monkeypatch, tmp_path)


async def test_a_kill_between_decision_and_answer_carries_it_out_once(stage: Stage, ann: Person) -> None:
    """The process is killed while the statement that answers waits; what it had decided goes with it."""
    run = await stage.start(parcel, "killed")
    gate = await asyncpg.connect(stage.url)
    await gate.execute(
        "CREATE FUNCTION wait_here() RETURNS trigger LANGUAGE plpgsql AS $$"
        " BEGIN PERFORM pg_advisory_xact_lock(4711); RETURN new; END $$;"
        " CREATE TRIGGER wait_here BEFORE UPDATE ON milepost.request FOR EACH ROW EXECUTE FUNCTION wait_here();"
        " SELECT pg_advisory_lock(4711)"
    )
    waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711 AND NOT granted"
    try:
        async with served(stage.env(), "orchestrator") as (process,):
            asked = await ann("runs", "cancel", "parcel/killed", "--undo", "--reason", "r", "--no-wait")
            assert (asked.status, asked.lines[0]["outcome"]) == (0, "asked")
            await until(lambda: gate.fetchval(waiting), within=30, what="the answer to be under way")
            await process.kill()
        assert (await stage.state(run), (await request_of(stage, run))["state"]) == ("PENDING", "OPEN")
        said = await ann("runs", "cancel", "parcel/killed", "--undo", "--reason", "r", "--wait", "0.3")
        assert (said.status, said.lines[0]["outcome"]) == (1, "open"), "nobody is there to answer"
    finally:
        await gate.close()
    async with served(stage.env(), "orchestrator", ready=0):
        await stage.resting([run], within=30)

        async def both() -> bool:
            query = "SELECT count(*) = 2 FROM milepost.request WHERE run_id = $1 AND state <> 'OPEN'"
            return bool(await stage.pool.fetchval(query, run))

        await until(both, within=30, what="both answers")
    assert await stage.state(run) == "CANCELLED"
    assert (await stage.history(run)).count("act.cancel") == 1
    rows = await stage.pool.fetch("SELECT state FROM milepost.request WHERE run_id = $1 ORDER BY id", run)
    assert [row["state"] for row in rows] == ["ACCEPTED", "REFUSED"]
    assert (
        await stage.pool.fetchval(
            "SELECT count(*) FROM milepost.audit WHERE act = 'run.cancel' AND outcome = 'DONE'"
        )
        == 1
    )
    assert await stage.effects(run) == []


async def test_when_nobody_answers_the_person_is_told_who_will(
    stage: Stage, ann: Person, tmp_path: Path
) -> None:
    run = await stage.start(never, "alone")
    said = await ann(
        *("runs", "cancel", "never/alone", "--no-undo", "--reason", "r", "--wait", "0.2"), json_lines=False
    )
    text = " ".join(line["text"] for line in said.lines)
    assert said.status == 1 and "stays open" in text
    assert f"`milepost serve` of service {stage.prefix}, with the role orchestrator and never v1" in text
    assert (await request_of(stage, run))["state"] == "OPEN"

    cancel = ("runs", "cancel", "never/alone")
    assert (await ann(*cancel, "--reason", "r")).status == 2, "--undo or --no-undo"
    assert (await ann(*cancel, "--undo")).status == 2, "--reason"
    assert (await ann(*cancel, "--undo", "--reason", " ")).status == 2
    assert (await ann("runs", "cancel", "never/nobody", "--undo", "--reason", "r")).status == 3
    unknown = await ann("runs", "retry", "never/alone", "pay", "--reason", "r")
    assert unknown.status == 3 and '"MP617"' in unknown.error and "never_act" in unknown.error
    marked = ("runs", "mark-succeeded", "never/alone", "never_act", "--reason", "r", "--result")
    for text in ("{", '{"number": NaN}', '{"number": "\\u0000"}'):
        (tmp_path / "result.json").write_text(text)
        refused = await ann(*marked, str(tmp_path / "result.json"))
        assert refused.status == 2 and '"MP616"' in refused.error
    assert (await ann(*marked, str(tmp_path / "nowhere.json"))).status == 2
    assert (await ann("worklist", "--kind", "frob")).status == 2
    assert await stage.pool.fetchval("SELECT count(*) FROM milepost.request") == 1
