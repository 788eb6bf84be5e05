"""The role `reconciler` in real processes, of which one is killed, and the command, over runs that stand still."""

from __future__ import annotations

from uuid import UUID

from tests.support.apps.ledger import ask, safe
from tests.support.apps.ledger_stage import Stage, staged
from tests.support.console import say, spoken
from tests.support.drifting import ROWS
from tests.support.process import served
from tests.support.waiting import until

REST = "relay,orchestrator,waker,worker"
LOST = 12


async def lost(stage: Stage) -> list[UUID]:
    """Start runs whose messages are gone, as a broker loses them, and which nobody would look at for an hour."""
    runs = [await stage.start(safe, f"lost-{n}") for n in range(LOST)]
    await stage.pool.execute("DELETE FROM milepost.outbox")
    await stage.pool.execute(
        "UPDATE milepost.step SET wake_at = now() + interval '1 hour', since = since - interval '1 minute'"
    )
    return runs


async def test_what_was_lost_goes_on_once_though_a_reconciler_is_killed(
    database_url: str, kafka: str, topic_prefix: str
) -> None:
    async with staged(database_url, kafka, topic_prefix) as stage:
        runs = await lost(stage)
        env = stage.env(MILEPOST_RECONCILE_EVERY="PT0.2S")
        async with served(env, REST, "reconciler", "reconciler") as (_, one, other):

            async def begun() -> bool:
                return bool(await stage.pool.fetchval(ROWS))

            await until(begun, within=30, what="the first repair")
            await one.kill()
            assert await stage.resting(runs, within=40) == {"SUCCEEDED": LOST}
            assert not other.ended
            well = [await stage.start(safe, f"well-{n}") for n in range(20)]
            assert await stage.resting(well, within=40) == {"SUCCEEDED": 20}
        for run in runs:
            assert await stage.effects(run) == ["act", "next"], await stage.story(run)
        # That nobody served the queue before the worker came was told, too.
        decided = "SELECT run_id, drift, decision FROM milepost.reconciliation WHERE decision IN ('RESUME', 'RETRY')"
        rows = await stage.pool.fetch(decided)
        assert len(rows) == LOST and {row["run_id"] for row in rows} == set(runs), "the others are left alone"
        assert {(row["drift"], row["decision"]) for row in rows} == {("NOT_TOLD", "RESUME")}


async def test_a_person_asks_for_one_run_and_is_shown_what_the_other_side_says(
    database_url: str, kafka: str, topic_prefix: str
) -> None:
    async with staged(database_url, kafka, topic_prefix) as stage:
        await stage.fault("u", "act", "after", "raise")
        await stage.fault("u", "find", "before", "raise")
        async with served(stage.env(), REST):
            run = await stage.start(ask, "u")
            await stage.step_is(run, "ask_act", "UNKNOWN")
            await stage.reached("u", "find", "before")
            await stage.pool.execute(
                "UPDATE milepost.step SET wake_at = now() + interval '1 hour' WHERE run_id = $1 AND state = 'UNKNOWN'",
                run,
            )
            dry = await say(stage.url, "reconcile", "ask/u", "--dry-run")
            assert (dry.code, [line["action"] for line in dry.lines]) == (1, ["RETRY"]), dry
            said = await say(stage.url, "reconcile", "ask/u", "--wait", "30")
            assert said.code == 0, said
            assert [(line["drift"], line["action"], line["outcome"]) for line in said.lines] == [
                ("UNKNOWN", "MARK_AS_SUCCESS", "REPAIRED")
            ]
            assert await stage.resting([run], within=40) == {"SUCCEEDED": 1}
            again = await say(stage.url, "reconcile", "ask/u")
            assert (again.code, again.lines) == (0, [])
            (shown,) = (await say(stage.url, "runs", "show", "ask/u", "--history")).lines
            probes = [line for line in shown["looked"] if not line["drift"]]
            assert [line["decision"] for line in probes][-1] == "MARK_AS_SUCCESS", shown["looked"]
            first = probes[0]
            assert (first["step"], first["decision"]) == ("ask_act", "NONE") and first["evidence"]["message"]
            text = await spoken(stage.url, "runs", "show", "ask/u", "--history")
            assert "not known yet" in text and first["evidence"]["message"].split("\n")[0][:20] in text, text
        assert (await stage.effects(run)).count("act") == 1
