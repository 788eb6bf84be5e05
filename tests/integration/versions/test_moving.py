"""Runs moved to a newer version: by compare-and-set, with history and audit; dry runs and repetitions agree."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any, cast

import asyncpg
import pytest
import pytest_asyncio
from milepost import Milepost, RunRef, Then
from milepost.consumers.moving import Moved, Mover
from milepost.consumers.store import load_run
from milepost.sagas.facts import Claim, Succeeded
from milepost.sagas.moving import plan as _plan
from milepost.sagas.saga import Saga
from milepost.schemas.errors import StateError
from pydantic import BaseModel

from tests.support.apps.versions_service import Parcel, Weighed, first, second
from tests.support.console import say
from tests.support.engine import Rig, rig, worker_id
from tests.support.process import ROOT
from tests.support.sagas import Delivered, Order, add_step, flow, new_saga


def grown() -> tuple[Saga[Order], Saga[Order]]:
    """Return v1 "a b wait" and v2 in which a and b have changed names and a step comes last."""
    v1, v2 = new_saga(), new_saga(version=2)
    for saga, names in ((v1, ("a", "b")), (v2, ("b", "a"))):
        for name in names:
            add_step(saga, name)
        saga.wait(
            "called" if saga is v1 else "rung",
            Delivered,
            match=lambda v: v.input.id,
            timeout=timedelta(days=1),
            on_timeout=Then.PERSON,
        )
    add_step(v2, "last")
    flow(v1)
    flow(v2)
    mine = {node.name: node for node in v1.nodes}
    theirs = {node.name: node for node in v2.nodes}
    pairs = (("a", "b"), ("b", "a"), ("called", "rung"))
    v2.migrate(v1, input=lambda given: given, steps={mine[x]: theirs[y] for x, y in pairs})
    return v1, v2


@pytest_asyncio.fixture
async def sagas() -> tuple[Saga[Order], Saga[Order]]:
    return grown()


@pytest_asyncio.fixture
async def engine(database_url: str, sagas: tuple[Saga[Order], Saga[Order]]) -> AsyncIterator[Rig]:
    async with rig(database_url, *sagas) as made:
        yield made


async def begun(engine: Rig, v1: Saga[Any], name: str, *done: str) -> RunRef:
    """Start a run of v1 and finish some of its steps."""
    async with engine.database.pool.acquire() as connection, connection.transaction():
        run = await engine.service.start(connection, v1, Order(id=name))
    for step in done:
        claim = await engine.engine.change(run.id, Claim(step, worker_id()))
        assert claim is not None and claim.decision.claimed is not None
        fence = claim.decision.claimed.fence
        await engine.engine.change(run.id, Succeeded(step, fence, {"id": step}))
    return run


async def moves(engine: Rig, saga: Saga[Any], *, dry_run: bool = False) -> dict[str, Moved]:
    mover = Mover(engine.engine.changes, saga, "ann", "new flow", dry_run)
    async with engine.database.pool.acquire() as proxy:
        connection = cast("asyncpg.Connection[Any]", proxy)
        return {moved.run: moved async for moved in mover.move_all(connection)}


async def test_moved_once_with_history_and_audit(engine: Rig, sagas: tuple[Saga[Order], Saga[Order]]) -> None:
    v1, v2 = sagas
    fresh, half, waiting = (
        await begun(engine, v1, "fresh"),
        await begun(engine, v1, "half", "a"),
        await begun(engine, v1, "waiting", "a", "b"),
    )
    busy = await begun(engine, v1, "busy")
    await engine.engine.change(busy.id, Claim("a", worker_id()))
    dry = await moves(engine, v2, dry_run=True)
    assert {run: moved.outcome for run, moved in dry.items()} == {
        "order/fresh": "movable",
        "order/half": "movable",
        "order/waiting": "movable",
        "order/busy": "stays",
    }
    assert dry["order/busy"].why == "a is RUNNING: let it come to an end first"
    pool = engine.database.pool
    assert await pool.fetchval("SELECT count(*) FROM milepost.run WHERE definition = 2") == 0
    wet = await moves(engine, v2)
    assert {run: (m.outcome, m.why) for run, m in wet.items()} == {
        run: ("moved" if m.outcome == "movable" else m.outcome, m.why) for run, m in dry.items()
    }
    again = await moves(engine, v2)
    assert {run: m.outcome for run, m in again.items()} == {"order/busy": "stays"}
    rows = await pool.fetch("SELECT name FROM milepost.step WHERE run_id = $1 ORDER BY n", waiting.id)
    assert [row["name"] for row in rows] == ["b", "a", "rung"]
    assert await pool.fetchval("SELECT step FROM milepost.wait WHERE run_id = $1", waiting.id) == "rung"
    audit = await pool.fetch("SELECT actor, act, reason, before, after FROM milepost.audit ORDER BY id")
    assert [(row["actor"], row["act"], row["reason"]) for row in audit] == [
        ("ann", "run.migrate", "new flow")
    ] * 3
    assert (
        json.loads(audit[0]["before"])["definition"] == 1 and json.loads(audit[0]["after"])["definition"] == 2
    )
    for run in (fresh, half, waiting):
        assert (await engine.history(run.id)).count("run.migrated") == 1
    assert (await begun(engine, v1, "fresh")).id == fresh.id


async def test_a_claim_in_between_wins_and_the_move_is_decided_anew(
    engine: Rig, sagas: tuple[Saga[Order], Saga[Order]], monkeypatch: pytest.MonkeyPatch
) -> None:
    v1, v2 = sagas
    run = await begun(engine, v1, "half", "a")
    real, load = _plan, load_run
    claims: list[int] = []
    first_time = [True]

    def plan(*arguments: Any) -> Any:
        claims.append(arguments[2].version)
        return real(*arguments)

    monkeypatch.setattr("milepost.consumers.moving.plan", plan)

    async def slow(connection: Any, run_id: Any) -> Any:
        loaded = await load(connection, run_id)
        if first_time:
            first_time.clear()
            await engine.engine.change(run.id, Claim("b", worker_id()))
        return loaded

    monkeypatch.setattr("milepost.consumers.moving.load_run", slow)
    (moved,) = (await moves(engine, v2)).values()
    assert (moved.outcome, moved.why) == ("stays", "b is RUNNING: let it come to an end first")
    assert len(claims) == 2, "it was decided anew on what the claim left"
    assert await engine.database.pool.fetchval("SELECT count(*) FROM milepost.audit") == 0


async def test_the_same_intent_in_an_older_form_is_the_same_run(engine: Rig, database_url: str) -> None:
    v1 = first()
    v2 = second(v1)
    service = Milepost("rig", sagas=[v1, v2], settings=engine.service.settings)
    async with engine.database.pool.acquire() as connection, connection.transaction():
        run = await service.start(connection, v1, Parcel(name="p"))
        assert (await service.start(connection, v2, Weighed(name="p", grams=1))).id == run.id
        with pytest.raises(StateError, match=r"MP302 .* \(changed: grams"):
            await service.start(connection, v2, Weighed(name="p", grams=2))


class Old(BaseModel):
    name: str


class New(BaseModel):
    name: str
    cents: int


def upcast() -> tuple[Saga[Old], Saga[New]]:
    """Return version 1 as it was, and as it reads its old inputs now."""
    was: Saga[Old] = Saga("cash", version=1, input=Old, key=lambda given: given.name)
    now: Saga[New] = Saga("cash", version=1, input=New, key=lambda given: given.name)

    @now.upcast_input(from_version=1)
    def to_new(old: Old) -> New:
        return New(name=old.name, cents=100)

    for saga in (was, now):
        add_step(saga, "pay")  # type: ignore[arg-type]
        saga.flow(*saga.nodes)
    return was, now


async def test_an_old_run_is_read_by_the_newer_input_and_an_old_process_leaves_a_new_run_alone(
    database_url: str,
) -> None:
    was, now = upcast()
    async with rig(database_url, was) as old, rig(database_url, now) as new:
        async with old.database.pool.acquire() as connection, connection.transaction():
            run = await old.service.start(connection, was, Old(name="o"))
            assert (await new.service.start(connection, now, New(name="o", cents=100))).id == run.id
            fresh = await new.service.start(connection, now, New(name="n", cents=5))
        row = await old.database.pool.fetchrow(
            "SELECT shape, input_version FROM milepost.run WHERE key = 'n'"
        )
        assert row is not None and (row["shape"], row["input_version"]) == (was.definition.shape, 2)
        assert await new.engine.change(run.id, Claim("pay", worker_id())) is not None
        assert await old.engine.change(fresh.id, Claim("pay", worker_id())) is None
        assert await new.engine.change(fresh.id, Claim("pay", worker_id())) is not None


async def test_the_command_line(database_url: str) -> None:
    env = {
        "MILEPOST_APP": "tests.support.apps.versions_service:service",
        "VERSIONS": "1,2",
        "VERSIONS_PREFIX": "moving",
    }
    v1 = first()
    async with rig(database_url, v1, name="moving") as made:
        async with made.database.pool.acquire() as connection, connection.transaction():
            for name in ("p1", "p2"):
                await made.service.start(connection, v1, Parcel(name=name))
            busy = await made.service.start(connection, v1, Parcel(name="p3"))
        await made.engine.change(busy.id, Claim("book", worker_id()))
        words = ("runs", "migrate", "parcel", "--to", "2")
        dry = await say(database_url, *words, "--dry-run", env=env)
        assert (dry.code, dry.lines[-1]) == (1, {"movable": 2, "of": 3})
        assert [line["outcome"] for line in dry.lines[:3]] == ["movable", "movable", "stays"]
        assert dry.lines[2]["why"] == "book is RUNNING: let it come to an end first"
        assert (await say(database_url, *words, env=env)).code == 2, "no reason"
        assert (await say(database_url, *words, "--reason", "x", env=env)).code == 2, "nobody to ask"
        nine = await say(database_url, *words[:-1], "9", "--dry-run", env=env)
        assert nine.code == 2 and "It has: parcel v1, parcel v2" in nine.errors
        wet = await say(database_url, "--yes", *words, "--reason", "new flow", env=env)
        assert (wet.code, wet.lines[-1]) == (1, {"moved": 2, "of": 3})
        rows = await made.database.pool.fetch("SELECT definition, input FROM milepost.run ORDER BY key")
        assert [row["definition"] for row in rows] == [2, 2, 1]
        assert json.loads(rows[0]["input"])["grams"] == 1
        work = await made.outgoing("milepost.work")
        assert [body["definition"] for body in work[-2:]] == [2, 2]


async def test_killed_in_the_middle_and_repeated_each_run_moves_once(database_url: str) -> None:
    v1 = first()
    env = {
        "MILEPOST_APP": "tests.support.apps.versions_service:service",
        "MILEPOST_DATABASE_URL": database_url,
        "VERSIONS": "1,2",
        "VERSIONS_PREFIX": "moving",
    }
    async with rig(database_url, v1, name="moving") as made:
        pool = made.database.pool
        async with pool.acquire() as connection, connection.transaction():
            for n in range(400):
                await made.service.start(connection, v1, Parcel(name=f"p{n}"))
        words = ("--yes", "runs", "migrate", "parcel", "--to", "2", "--reason", "new flow")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "milepost.console.main", *words),
            env={**os.environ, "PYTHONPATH": str(ROOT), **env},
            cwd=ROOT,
            stdout=asyncio.subprocess.DEVNULL,
        )
        moved = "SELECT count(*) FROM milepost.run WHERE definition = 2"
        while await pool.fetchval(moved) < 20:
            assert process.returncode is None, "it ended before it could be killed"
        process.kill()
        await process.wait()
        before = await pool.fetchval(moved)
        assert 20 <= before < 400
        again = await say(database_url, *words, env=env)
        assert (again.code, again.lines[-1]) == (0, {"moved": 400 - before, "of": 400 - before})
        last = await say(database_url, *words, env=env)
        assert (last.code, last.lines) == (0, [{"moved": 0, "of": 0}]), "nothing more"
        for query in (
            "SELECT count(*), count(DISTINCT run_id) FROM milepost.audit WHERE act = 'run.migrate'",
            "SELECT count(*), count(DISTINCT run_id) FROM milepost.history WHERE event = 'run.migrated'",
        ):
            row = await pool.fetchrow(query)
            assert row is not None and tuple(row) == (400, 400)
