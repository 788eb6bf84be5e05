"""Acts on many: what was shown is what is done, one outcome each, whoever carries it out and whoever is killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any, cast
from uuid import UUID

import asyncpg
import pytest
from milepost import RunRef
from milepost.consumers.ageing import Ageing
from milepost.recovery.acting import ask_for
from milepost.recovery.bulk import Bulk, bulks, items_of
from milepost.recovery.bulk_beginning import begin
from milepost.recovery.bulk_carrying import BulkCarrier, carry, control, due_in, settle
from milepost.recovery.bulk_choosing import Preview, RunFilter, preview_runs
from milepost.recovery.observing import look
from milepost.recovery.permissions import EVERYTHING, Actor, ActorKind, Grant, Role
from milepost.recovery.proposing import Idea, propose
from milepost.recovery.requests import Request
from milepost.schemas.errors import StateError, UsageError
from milepost.schemas.ids import SystemClock, SystemIds
from milepost.schemas.states import RunState
from milepost.streams.lifecycle import Stop

from tests.support.console_calls import Call, milepost
from tests.support.engine import Rig
from tests.support.process import ROOT
from tests.support.two_sagas import ANN, BOB, ORDER, PAYMENT, Order, actor, entries, opened, turn
from tests.support.waiting import until

__all__ = ["milepost"]
BOSS = actor("boss", Role.OPERATOR)


async def runs_of(it: Rig, amount: int, saga: Any = ORDER) -> list[RunRef]:
    return [await it.start(saga, Order(id=f"o-{n}")) for n in range(amount)]


async def stand(connection: asyncpg.Connection[Any], runs: list[RunRef], code: str) -> None:
    """Have the only step of runs stand in front of a person."""
    ids = [run.id for run in runs]
    await connection.execute("UPDATE milepost.run SET state = 'MANUAL_REQUIRED' WHERE id = ANY ($1)", ids)
    await connection.execute(
        "UPDATE milepost.step SET state = 'MANUAL_REQUIRED', code = $2 WHERE run_id = ANY ($1)", ids, code
    )


async def cancel(
    connection: asyncpg.Connection[Any], who: Actor = ANN, rate: float = 200.0, **more: Any
) -> UUID:
    preview = await preview_runs(connection, who, "cancel", RunFilter(**{"saga": "order"} | more))
    return await begin(connection, who, preview, reason="all of them", arguments={"undo": False}, rate=rate)


async def one_of(connection: asyncpg.Connection[Any], id: UUID) -> Bulk:
    (found,) = await bulks(connection, EVERYTHING, id=id)
    return found


async def carry_all(connection: asyncpg.Connection[Any], id: UUID) -> int:
    done = 0
    while (await one_of(connection, id)).counts.get("WAITING"):
        done += await carry(connection, id)
    return done


async def test_what_was_shown_is_done_with_one_outcome_each(database_url: str) -> None:
    async with opened(database_url) as (it, connection):
        runs = await runs_of(it, 6)
        preview = await preview_runs(connection, ANN, "cancel", RunFilter(saga="order"))
        assert [item.subject for item in preview.items] == [f"order/o-{n}" for n in range(6)]
        assert (
            not preview.second
            and not preview.more
            and await it.value("SELECT count(*) FROM milepost.bulk") == 0
        )
        id = await begin(connection, ANN, preview, reason="all", arguments={"undo": False}, rate=200)
        later = await it.start(ORDER, Order(id="later"))  # not shown, so not touched
        alone = Request(run=runs[0].id, what="cancel", by="", reason="alone", undo=False)
        assert (await ask_for(connection, BOSS, alone)).request is not None and await turn(it) == 1
        assert await carry_all(connection, id) == 6
        assert (await one_of(connection, id)).counts == {"ASKED": 6}
        await turn(it)
        await settle(connection)
        found = await one_of(connection, id)
        assert (found.state, found.left, found.total) == ("DONE", 0, 6)
        assert found.counts == {"ACCEPTED": 5, "REFUSED": 1}, "one had ended meanwhile, and stopped no other"
        rows = await items_of(connection, id)
        assert rows[0]["outcome"] == "REFUSED" and rows[1]["text"].startswith("CANCELLED")
        assert (await it.states(later.id))[""] == "PENDING"
        assert not await carry(connection, id) and (await one_of(connection, id)).counts == found.counts
        assert await due_in(connection) is None
        assert ("Ann", "PERSON", "bulk.cancel", "DONE") in await entries(it)


async def test_filters_choose_steps_and_runs_that_the_act_can_change(database_url: str) -> None:
    async with opened(database_url) as (it, connection):
        runs = await runs_of(it, 5)
        await stand(connection, runs[:2], "NO")
        await stand(connection, runs[2:3], "OTHER")

        async def found(act: str, who: Actor = ANN, **more: Any) -> list[str]:
            return [
                item.subject for item in (await preview_runs(connection, who, act, RunFilter(**more))).items
            ]

        assert await found("retry", saga="order") == [f"order/o-{n} pack" for n in range(3)]
        assert await found("skip", code="NO") == ["order/o-0 pack", "order/o-1 pack"]
        assert await found("mark_succeeded", step="pack", code="OTHER") == ["order/o-2 pack"]
        assert await found("compensate", code="NO") == ["order/o-0", "order/o-1"]
        assert len(await found("cancel", saga="order")) == 5
        assert await found("cancel", states=[RunState.PENDING]) == ["order/o-3", "order/o-4"]
        assert await found("cancel", saga="order", since=timedelta(0)) == []
        assert await found("approve", saga="order") == []
        few = Actor("eve", ActorKind.PERSON, (Grant(Role.OPERATOR, None, frozenset({"payment"})),))
        assert await found("retry", few, saga="order") == []
        preview = await preview_runs(connection, actor("eve", Role.VIEWER), "retry", RunFilter(saga="order"))
        assert (list(preview.items), preview.forbidden) == ([], 3)
        preview = await preview_runs(connection, ANN, "retry", RunFilter(saga="order"), limit=2)
        assert (len(preview.items), preview.more, preview.codes) == (2, True, Counter(NO=2))
        for act, wanted in (("cancel", RunFilter()), ("redrive", RunFilter(saga="order"))):
            with pytest.raises(UsageError, match="MP671"):
                await preview_runs(connection, ANN, act, wanted)
        with pytest.raises(UsageError, match="MP671"):
            await begin(connection, ANN, Preview("cancel", {}, [], 0, False), reason="x")


async def test_pause_resume_and_stop_hold_and_the_rate_is_bounded(database_url: str) -> None:
    async with opened(database_url) as (it, connection):
        await runs_of(it, 8)
        id = await cancel(connection, rate=5.0)
        began = asyncio.get_running_loop().time()
        carriers = [asyncio.create_task(_carries(it, id, 4)) for _ in range(3)]
        await asyncio.gather(*carriers)
        spent = asyncio.get_running_loop().time() - began
        asked = (await one_of(connection, id)).counts["ASKED"]
        assert asked >= 4 and spent >= (asked - 1) / 5 - 0.05, "three carriers are no faster than the rate"
        assert (await control(connection, ANN, id, "pause", reason="wait")).state == "PAUSED"
        assert not await carry(connection, id)
        with pytest.raises(StateError, match="MP673"):
            await control(connection, ANN, id, "pause", reason="twice")
        with pytest.raises(StateError, match="MP660"):
            await control(connection, actor("eve", Role.VIEWER), id, "resume", reason="go")
        assert (await control(connection, ANN, id, "resume", reason="go")).state == "RUNNING"
        assert await carry(connection, id)
        stopped = await control(connection, ANN, id, "stop", reason="enough")
        assert stopped.state == "STOPPED" and stopped.counts["STOPPED"] == 8 - asked - 1
        assert not await carry(connection, id)
        await turn(it)
        await settle(connection)
        assert (await one_of(connection, id)).counts == {"ACCEPTED": asked + 1, "STOPPED": 7 - asked}
        with pytest.raises(StateError, match="MP673"):
            await control(connection, ANN, id, "resume", reason="go")
        with pytest.raises(StateError, match="MP672"):
            await control(connection, ANN, SystemIds().new(), "stop", reason="x")


async def _carries(it: Rig, id: UUID, enough: int) -> None:
    async with it.database.pool.acquire() as own:
        connection = cast("asyncpg.Connection[Any]", own)
        while (await one_of(connection, id)).counts.get("ASKED", 0) < enough:
            if not await carry(connection, id):
                await asyncio.sleep(0.01)


async def test_many_of_critical_consequence_wait_for_a_second_person(database_url: str) -> None:
    async with opened(database_url) as (it, connection):
        runs = await runs_of(it, 3, PAYMENT)
        id = await cancel(connection, saga="payment")
        assert (await one_of(connection, id)).state == "HELD" and not await carry(connection, id)
        (age,) = [one for one in (await look(connection)).ages if one.what == "bulk_held"]
        assert (age.amount, age.first) == (1, "cancel of 3 by Ann") and age.seconds is not None
        with pytest.raises(StateError, match="MP661"):
            await control(connection, actor("ANN", Role.ADMIN), id, "confirm", reason="me")
        assert (await control(connection, BOB, id, "confirm", reason="seen")).state == "RUNNING"
        assert [one.amount for one in (await look(connection)).ages if one.what == "bulk_held"] == [0]
        assert await carry_all(connection, id) == 3
        assert await turn(it) == 3, "confirmed as a whole, so none is held again"
        assert {(await it.states(run.id))[""] for run in runs} == {"CANCELLED"}
        row = await it.row(
            "SELECT evidence FROM milepost.audit WHERE run_id = $1 AND act = 'run.cancel'", runs[0].id
        )
        assert json.loads(row["evidence"])["confirmed_by"] == "bob"


async def test_what_has_ended_goes_by_its_age(database_url: str) -> None:
    async with opened(database_url) as (it, connection):
        runs = await runs_of(it, 2)
        gone, kept, young = [await cancel(connection) for _ in range(3)]
        wanted = {
            "act": "cancel",
            "arguments": {"undo": False},
            "reason": "r",
            "drift": "d",
            "rollback": "none",
        }
        bare: dict[str, Any] = wanted | {"observed": {}, "expected": {}, "idempotent": True}
        ideas = [await propose(connection, ANN, Idea(run=run.id, **bare)) for run in runs]
        old = "UPDATE milepost.{} SET at = at - interval '200 days' WHERE id = ANY ($1)"
        await connection.execute(old.format("bulk"), [gone, kept])
        await connection.execute(old.format("proposal"), ideas)
        await connection.execute("UPDATE milepost.proposal SET expires_at = at")
        await connection.execute(
            "UPDATE milepost.bulk SET state = 'DONE', ended_at = at WHERE id = ANY ($1)", [gone, young]
        )
        await connection.execute("DELETE FROM milepost.run WHERE id = $1", runs[0].id)
        ageing = Ageing(it.database, clock=SystemClock())
        await ageing._tidy(connection, Stop(SystemClock(), timedelta(seconds=5)))
        assert {one.id for one in await bulks(connection, EVERYTHING)} == {kept, young}
        assert await it.value("SELECT count(*) FROM milepost.bulk_item WHERE bulk = $1", gone) == 0
        assert [row["id"] for row in await connection.fetch("SELECT id FROM milepost.proposal")] == ideas[1:]


PROGRAM = """
import asyncio, sys, asyncpg
from milepost.recovery.bulk_carrying import carry, due_in

async def main():
    connection = await asyncpg.connect(sys.argv[1])
    print("ready", flush=True)
    while (pause := await due_in(connection)) is not None:
        if not await carry(connection):
            await asyncio.sleep(min(pause, 0.02))

asyncio.run(main())
"""


async def test_a_carrier_that_is_killed_loses_and_doubles_nothing(database_url: str) -> None:
    amount = 60
    async with opened(database_url) as (it, connection):
        async with it.database.pool.acquire() as own, own.transaction():
            for n in range(amount):
                await it.service.start(own, ORDER, Order(id=f"o-{n}"))
        id = await cancel(connection, rate=200.0)
        kills = 0
        for enough in (10, 30):
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", PROGRAM, database_url),
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdout=asyncio.subprocess.DEVNULL,
                cwd=ROOT,
            )

            async def far() -> bool:
                return bool(await it.value("SELECT count(*) >= $1 FROM milepost.request", enough))  # noqa: B023

            await until(far, within=60, what=f"{enough} requests")
            process.send_signal(signal.SIGKILL)
            await process.wait()
            kills += 1
            requests = await it.value("SELECT count(*) FROM milepost.request")
            noted = await it.value("SELECT count(*) FROM milepost.bulk_item WHERE state = 'ASKED'")
            assert requests == noted < amount, "asked for and noted, or neither"
        stop = Stop(SystemClock(), timedelta(seconds=5))
        task = asyncio.create_task(BulkCarrier(it.database.pool).run(stop))

        async def done() -> bool:
            await turn(it)
            return (await one_of(connection, id)).state == "DONE"

        await until(done, within=60, what="all of them")
        stop.ask()
        await task
        found = await one_of(connection, id)
        assert (kills, found.counts) == (2, {"ACCEPTED": amount})
        per_run = await connection.fetch("SELECT count(*) AS n FROM milepost.request GROUP BY run_id")
        assert [row["n"] for row in per_run] == [1] * amount
        assert await it.value("SELECT count(*) FROM milepost.run WHERE state = 'CANCELLED'") == amount
        acted = "SELECT count(*) FROM milepost.audit WHERE act = 'run.cancel' AND outcome = 'DONE'"
        assert await it.value(acted) == amount


def test_the_command_line_counts_previews_asks_and_tells(
    database_url: str, milepost: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(call: Callable[[Rig, asyncpg.Connection[Any]], Any]) -> Any:
        async def inner() -> Any:
            async with opened(database_url) as (it, connection):
                return await call(it, connection)

        return asyncio.run(inner())

    async def prepare(it: Rig, connection: asyncpg.Connection[Any]) -> None:
        await stand(connection, await runs_of(it, 7), "NO")

    run(prepare)
    words = ("runs", "cancel", "--saga", "order", "--code", "no", "--no-undo", "--reason", "sold out")
    status, out, err = milepost("--as", "ann", *words)
    assert (status, out) == (2, "") and "MP426" in err and "7 (7 NO):" in err and "… and 2 more" in err
    assert milepost("--as", "ann", "bulk", "list", "--all")[1] == "there was no act on many yet\n"
    status, out, _ = milepost("--as", "ann", "--yes", "--json", *words, "--no-wait")
    id = json.loads(out)["bulk"]
    assert status == 0 and milepost("bulk", "pause", id, "--reason", "wait")[0] == 0
    status, out, _ = milepost("bulk", "list")
    assert status == 0 and id in out and "PAUSED" in out and "7 not begun" in out
    assert milepost("bulk", "resume", id, "--reason", "go")[0] == 0
    run(lambda it, connection: carry_all(connection, UUID(id)))
    run(lambda it, connection: turn(it))
    run(lambda it, connection: settle(connection))
    status, out, _ = milepost("bulk", "show", id)
    assert status == 0 and out.startswith(f"bulk {id} DONE: cancel by ann") and "7 accepted; sold out" in out
    assert "1 order/o-0 ACCEPTED CANCELLED; done: nothing" in out
    assert milepost("bulk", "show", id, "--outcome", "refused")[1].count("order/") == 0
    status, out, _ = milepost("--yes", *words)
    assert (status, out) == (0, "nothing fits that cancel could change\n")
    for wrong in (
        ("runs", "cancel", "--no-undo", "--reason", "x"),
        ("runs", "cancel", "order/o-1", "--saga", "order", "--no-undo", "--reason", "x"),
        ("runs", "retry", "--saga", "order", "--budget", "tokens=5", "--reason", "x"),
        ("runs", "retry", "order/o-1", "--reason", "x"),
        ("bulk", "stop", "nonsense", "--reason", "x"),
    ):
        status, _, err = milepost(*wrong)
        assert status == 2 and err.startswith("MP6"), wrong
    monkeypatch.setenv("MILEPOST_GRANTS", "viewer")
    assert milepost("bulk", "stop", id, "--reason", "x")[2].startswith("MP660")
