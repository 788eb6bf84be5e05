"""Requirement F12: a process dies before the effect, after the effect, after the record; what then happens once.

Each kind of step has a service of its own, so that they die side by side, and one step runs at a time, so that a
kill hits only its own run.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from uuid import UUID

from milepost import Saga

from tests.support.apps.ledger import Job, ask, booked, never, parcel, safe
from tests.support.apps.ledger_stage import Stage, staged
from tests.support.process import Supervised, supervising

#: After the record of `act` is before the call of `next`.
MOMENTS = {"before": ("act", "before"), "after": ("act", "after"), "record": ("next", "before")}
SAGAS: dict[str, Saga[Job]] = {"safe": safe, "ask": ask, "never": never, "booked": booked}


@asynccontextmanager
async def stages(url: str, kafka: str, prefix: str, names: Sequence[str]) -> AsyncIterator[dict[str, Stage]]:
    """One service per name, all on one database."""
    async with AsyncExitStack() as stack:
        yield {
            name: await stack.enter_async_context(staged(url, kafka, f"{prefix}-{name}")) for name in names
        }


def process(stage: Stage, **more: object) -> Supervised:
    """A process with all roles of one service."""
    return Supervised(stage.env(MILEPOST_STEP_CONCURRENCY=1, MILEPOST_LEASE="2s", **more))


async def killed_in(stage: Stage, saga: Saga[Job], moment: str) -> UUID:
    """Start a run in which the process dies once, at that moment."""
    name = f"{saga.name}-{moment}"
    what, point = MOMENTS[moment]
    await stage.fault(name, what, point, "kill")
    return await stage.start(saga, name)


async def test_a_kill_around_an_effect_never_loses_or_repeats_it(
    database_url: str, kafka: str, topic_prefix: str
) -> None:
    async with stages(database_url, kafka, topic_prefix, list(SAGAS)) as services:
        runs = {
            (name, moment): await killed_in(services[name], saga, moment)
            for name, saga in SAGAS.items()
            for moment in MOMENTS
        }
        processes = [process(stage) for stage in services.values()]
        stage = services["safe"]
        async with supervising(processes):
            ended = await stage.resting(list(runs.values()), within=180)
        assert await stage.faults_left() == 0, "a fault did not happen"
        assert [len(each) for each in processes] == [1 + len(MOMENTS)] * len(SAGAS), (
            "each kill ended a process"
        )
        assert ended == {"SUCCEEDED": 10, "MANUAL_REQUIRED": 2}
        for (name, moment), run in runs.items():
            place = f"{name}, killed at {moment}\n{await stage.story(run)}"
            by_person = name == "never" and moment in {"before", "after"}
            wanted = ["act", "next"]
            if by_person:
                wanted = ["act"] if moment == "after" else []
            assert await stage.effects(run) == wanted, place
            assert await stage.state(run) == ("MANUAL_REQUIRED" if by_person else "SUCCEEDED"), place
            asked = await stage.calls(run, "act")
            if name == "safe":
                assert asked == (2 if moment == "after" else 1), place
            elif name == "booked":
                assert asked == 0, "a transactional step calls nobody"
            else:
                assert asked == wanted.count("act"), place


async def test_unknown_outcomes_say_what_they_turned_out_to_be(
    database_url: str, kafka: str, topic_prefix: str
) -> None:
    async with stages(database_url, kafka, topic_prefix, ["absent", "found", "never"]) as services:
        absent = await killed_in(services["absent"], ask, "before")
        found = await killed_in(services["found"], ask, "after")
        for_people = await killed_in(services["never"], never, "after")
        # The probe's process dies too: before it has asked, and with the answer in its hands.
        stage = services["absent"]
        await stage.fault("ask-after", "find", "before", "kill")
        await stage.fault("ask-before", "find", "after", "kill")
        async with supervising([process(service) for service in services.values()]):
            await stage.resting([absent, found, for_people], within=120)
        assert await stage.faults_left() == 0, "a fault did not happen"
        query = "SELECT decision FROM milepost.reconciliation WHERE run_id = $1 AND decision <> 'NONE' ORDER BY at"
        settled = {
            run: [row["decision"] for row in await stage.pool.fetch(query, run)] for run in (absent, found)
        }
        assert settled == {absent: ["RETRY"], found: ["MARK_AS_SUCCESS"]}
        for run in (absent, found):
            assert await stage.effects(run) == ["act", "next"], await stage.story(run)
            assert "step.probe_lost" in await stage.history(run)
        step = await stage.step(for_people, "never_act")
        assert (step["state"], step["code"], step["doubt"]) == ("MANUAL_REQUIRED", "OUTCOME_UNKNOWN", True)
        assert step["attempt"] == 1


async def test_a_kill_around_an_undo_never_loses_or_repeats_it(
    database_url: str, kafka: str, topic_prefix: str
) -> None:
    places = {
        "a": [("call back", "before"), ("repay", "after")],
        "b": [("call back", "after"), ("repay", "before")],
    }
    async with stages(database_url, kafka, topic_prefix, list(places)) as services:
        runs = []
        for name, stage in services.items():
            for what, point in places[name]:
                await stage.fault(name, what, point, "kill")
            runs.append(await stage.start(parcel, name))
        processes = [process(stage, LEDGER_WAIT=3) for stage in services.values()]
        stage = services["a"]
        async with supervising(processes):
            assert await stage.resting(runs, within=120) == {"COMPENSATED": len(runs)}
        assert await stage.faults_left() == 0, "a fault did not happen"
        assert [len(each) for each in processes] == [3, 3], "each kill ended a process"
        for run in runs:
            assert await stage.effects(run) == ["pay", "send", "call back", "repay"], await stage.story(run)
