"""Requests of persons on a real database: who may ask, and that an act and its answer are one."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import psycopg
import pytest
from milepost import Context, Milepost, Repeat, RunRef, RunState, Saga
from milepost.consumers.carrying import Carrier
from milepost.recovery.requests import Request, ask
from milepost.sagas.facts import Claim
from milepost.schemas.errors import StateError, UsageError
from milepost.schemas.ids import SystemIds
from milepost.streams.drivers import run_in
from milepost.testing import open_kit
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from tests.support.engine import Rig, rig, settings_for, worker_id

BY = {"by": "ann", "reason": "the customer called"}


class Order(BaseModel):
    id: str


class Number(BaseModel):
    value: int


def ordered(version: int = 1) -> Saga[Order]:
    """A saga of one step."""
    made = Saga("order", version=version, input=Order, key=lambda order: order.id)

    @made.step(repeat=Repeat.SAFE)
    async def pack(ctx: Context[Order]) -> Number:
        return Number(value=2)

    made.flow(pack)
    return made


def carrier(it: Rig, largest: int = 1000) -> Carrier:
    return Carrier(it.engine, max_result_bytes=largest)


async def asked(it: Rig, run: UUID, what: str = "cancel", **more: Any) -> UUID:
    """Ask as the command line does."""
    wanted = {"undo": False} if what == "cancel" else {}
    async with it.database.pool.acquire() as connection, connection.transaction():
        request = Request(run=run, what=what, **{**BY, **wanted, **more})  # type: ignore[arg-type]
        return await ask(await run_in(connection, "runs"), request, SystemIds(), "runs")


async def stands(it: Rig, request: UUID) -> tuple[str, str]:
    row = await it.row("SELECT state, answer FROM milepost.request WHERE id = $1", request)
    return row["state"], row["answer"]


async def acts(it: Rig, run: UUID) -> list[str]:
    return [event for event in await it.history(run) if event.startswith("act.")]


async def test_it_is_carried_out_once_by_whoever_comes_first_and_is_audited(database_url: str) -> None:
    saga = ordered()
    async with rig(database_url, saga) as it:
        runs = [(await it.start(saga, Order(id=f"o-{n}"))).id for n in range(6)]
        requests = [await asked(it, run) for run in runs]
        turns = await asyncio.gather(*(carrier(it).turn() for _ in range(4)))
        assert sum(turns) == len(runs)
        for run, request in zip(runs, requests, strict=True):
            assert (await it.states(run))[""] == "CANCELLED"
            assert len(await acts(it, run)) == 1
            assert await stands(it, request) == ("ACCEPTED", "CANCELLED; done: nothing")
        audit = await it.row("SELECT * FROM milepost.audit WHERE id = $1", requests[0])
        assert (audit["actor"], audit["act"], audit["reason"]) == ("ann", "run.cancel", BY["reason"])
        assert (audit["run_id"], audit["before"], audit["after"]) == (
            runs[0],
            '{"run": "PENDING"}',
            '{"run": "CANCELLED"}',
        )
        assert await it.value("SELECT count(*) FROM milepost.audit") == len(runs)
        assert await carrier(it).turn() == 0


async def test_decision_and_answer_are_stored_together_and_one_that_fails_stops_no_other(
    database_url: str,
) -> None:
    saga = ordered()
    async with rig(database_url, saga) as it:
        runs = [(await it.start(saga, Order(id=name))).id for name in ("o-1", "o-2")]
        broken, fine = [await asked(it, run) for run in runs]
        await it.database.pool.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'told to'; END $$;"
            f"CREATE TRIGGER refuse BEFORE UPDATE ON milepost.request FOR EACH ROW WHEN (new.id = '{broken}')"
            " EXECUTE FUNCTION refuse()"
        )
        carries = carrier(it)
        assert await carries.turn() == 1
        assert (await stands(it, fine))[0] == "ACCEPTED"
        assert not carries.health().ok and str(broken) in carries.health().detail
        assert (await it.states(runs[0]))[""] == "PENDING" and await acts(it, runs[0]) == []
        assert (await stands(it, broken))[0] == "OPEN"
        await it.database.pool.execute("DROP TRIGGER refuse ON milepost.request")
        assert await carries.turn() == 1
        assert carries.health().ok
        assert (await it.states(runs[0]))[""] == "CANCELLED" and len(await acts(it, runs[0])) == 1


async def test_what_another_process_has_to_do_stays_open(database_url: str) -> None:
    """A definition that this process lacks, another service; but a run that is gone is answered by anybody."""
    old, new = ordered(), ordered(version=2)
    async with rig(database_url, old) as it, rig(database_url, new) as newer:
        run, gone = [(await it.start(old, Order(id=name))).id for name in ("o-1", "o-2")]
        async with rig(database_url, old, name="other") as other:
            requests = [await asked(it, run), await asked(it, gone)]
            await it.database.pool.execute("DELETE FROM milepost.run WHERE id = $1", gone)
            assert await carrier(other).turn() == 0, "it is no run of this service"
            assert await carrier(newer).turn() == 1, "this process has another version"
            assert [(await stands(it, request))[0] for request in requests] == ["OPEN", "REFUSED"]
            assert "no longer kept" in (await stands(it, requests[1]))[1]
            assert await carrier(it).turn() == 1
        assert (await stands(it, requests[0]))[0] == "ACCEPTED"


async def test_a_step_that_was_tried_since_and_a_result_too_large_are_left_alone(database_url: str) -> None:
    saga = ordered()
    async with rig(database_url, saga) as it:
        run = (await it.start(saga, Order(id="o-1"))).id
        older = await asked(it, run, "skip", step="pack", fence=0)
        large = await asked(it, run, "mark_succeeded", step="pack", result={"value": 2, "more": "x" * 1000})
        await it.engine.change(run, Claim("pack", worker_id()))
        before = await it.value("SELECT version FROM milepost.run WHERE id = $1", run)
        assert await carrier(it).turn() == 2
        state, answer = await stands(it, older)
        assert state == "REFUSED" and "tried since you looked" in answer
        state, answer = await stands(it, large)
        assert state == "REFUSED" and "1000 are stored at most" in answer
        assert await it.value("SELECT version FROM milepost.run WHERE id = $1", run) == before
        refused = "SELECT count(*) FROM milepost.audit WHERE outcome = 'REFUSED'"
        assert await it.value(refused) == 2 == await it.value("SELECT count(*) FROM milepost.audit")


async def test_cancel_is_part_of_the_callers_transaction_on_every_driver(database_url: str) -> None:
    saga = ordered()
    sqlalchemy = create_async_engine(database_url.replace("postgresql://", "postgresql+asyncpg://"))
    async with rig(database_url, saga) as it:
        cancel = it.service.cancel
        runs = [await it.start(saga, Order(id=f"o-{n}")) for n in range(4)]

        async def in_all(commit: bool) -> None:
            async with it.database.pool.acquire() as connection, _ended(connection.transaction(), commit):
                await cancel(connection, runs[0], undo=True, **BY)
            async with AsyncSession(sqlalchemy) as session, _ended(session.begin(), commit):
                await cancel(session, runs[1], undo=False, **BY)
            async with await psycopg.AsyncConnection.connect(database_url) as other:
                async with _ended(other.transaction(), commit):
                    await cancel(other, runs[2], undo=True, **BY)
            async with _ended(it.service.transaction(), commit) as tx:
                await cancel(tx, runs[3], undo=True, **BY)

        try:
            await in_all(commit=False)
            assert await it.value("SELECT count(*) FROM milepost.request") == 0
            await in_all(commit=True)
        finally:
            await sqlalchemy.dispose()
        rows = await it.database.pool.fetch("SELECT run_id, undo FROM milepost.request ORDER BY id")
        assert [row["run_id"] for row in rows] == [run.id for run in runs]
        assert [row["undo"] for row in rows] == [True, False, True, True]
        assert await carrier(it).turn() == 4
        assert [(await it.states(run.id))[""] for run in runs] == ["CANCELLED"] * 4
        await it.service.close()


class _Enough(Exception):
    pass


@contextlib.asynccontextmanager
async def _ended(block: Any, commit: bool) -> AsyncIterator[Any]:
    """A transaction that commits, or is rolled back by an error of the caller's."""
    with contextlib.suppress(_Enough):
        async with block as given:
            yield given
            if not commit:
                raise _Enough


async def test_who_and_why_must_be_said_and_the_run_must_be_there(database_url: str) -> None:
    saga = ordered()
    async with rig(database_url, saga) as it:
        run = await it.start(saga, Order(id="o-1"))
        nobody = RunRef(id=SystemIds().new(), tenant="", saga="order", key="o-9")
        async with it.database.pool.acquire() as connection:
            with pytest.raises(UsageError, match=r"MP301 cancel\(\)"):
                await it.service.cancel(connection, run, undo=True, **BY)
            async with connection.transaction():
                for wrong in ({"by": " "}, {"reason": ""}, {"reason": "x" * 4001}, {"by": "a\x00b"}):
                    with pytest.raises(UsageError, match=r"MP614 cancel\(\)"):
                        await it.service.cancel(connection, run, undo=True, **{**BY, **wrong})
                with pytest.raises(StateError, match=f"MP604 .*{nobody.id}"):
                    await it.service.cancel(connection, nobody, undo=True, **BY)
        assert await it.value("SELECT count(*) FROM milepost.request") == 0


async def test_a_persons_tool_needs_the_runtime_role_which_cannot_change_what_was_asked(
    database_url: str,
) -> None:
    saga, name = ordered(), f"milepost_test_{secrets.token_hex(6)}"
    async with rig(database_url, saga) as it:
        run = (await it.start(saga, Order(id="o-1"))).id
        await it.database.pool.execute(f"CREATE ROLE {name} LOGIN IN ROLE milepost_runtime")
        try:
            async with rig(f"postgresql://{name}@{database_url.rpartition('@')[2]}", saga) as theirs:
                request = await asked(theirs, run)
                for change in ("UPDATE milepost.request SET reason = 'x'", "DELETE FROM milepost.request"):
                    with pytest.raises(asyncpg.InsufficientPrivilegeError):
                        await theirs.database.pool.execute(change)
                assert await carrier(theirs).turn() == 1
            assert (await stands(it, request))[0] == "ACCEPTED"
        finally:
            await it.database.pool.execute(f"DROP ROLE {name}")


async def test_a_kit_carries_a_cancel_out(database_url: str) -> None:
    saga = ordered()
    service = Milepost("shop", sagas=[saga], settings=settings_for(database_url))
    async with open_kit(service) as kit:
        run = await kit.start(saga, Order(id="o-1"))
        async with service.transaction() as tx:
            await service.cancel(tx, run, undo=True, **BY)
        await kit.until(run, RunState.CANCELLED)
        await kit.advance(timedelta(0))
