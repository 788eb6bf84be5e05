"""Runs that have drifted, and passes over them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast
from uuid import UUID

import asyncpg
from milepost import Context, Event, Found, Probe, Repeat, Retry, Saga, Then
from milepost.recovery.executor import Executor
from milepost.recovery.model import Outcome, Reconciled
from milepost.recovery.passing import Pass
from milepost.recovery.policies import Policies
from milepost.sagas.facts import Claim
from milepost.schemas.ids import SystemIds
from pydantic import BaseModel

from tests.support.engine import Rig, worker_id

IDS = SystemIds()
ROWS = "SELECT count(*) FROM milepost.reconciliation WHERE drift <> ''"


class Order(BaseModel):
    id: str


class Arrived(Event, type="drift.arrived", topic="drift-arrivals", key="id", correlate="id"):
    id: str


def parcel(lock: bool = False) -> Saga[Order]:
    """A step, a wait and a step, with undo."""
    made = Saga(
        "parcel", version=1, input=Order, key=lambda o: o.id, lock=(lambda o: "dock") if lock else None
    )

    @made.step(repeat=Repeat.SAFE, retry=Retry(attempts=3))
    async def send(ctx: Context[Order]) -> None: ...

    @send.undo
    async def call_back(ctx: Context[Order], done: None) -> None: ...

    arrived = made.wait(
        "arrived", Arrived, match=lambda v: v.input.id, timeout=timedelta(days=3), on_timeout=Then.PERSON
    )

    @made.step(repeat=Repeat.SAFE, no_undo="the last", retry=Retry(attempts=1))
    async def close(ctx: Context[Order]) -> None: ...

    made.flow(send, arrived, close)
    return made


def paid() -> Saga[Order]:
    """A step that is asked about when its answer is lost."""
    made = Saga("paid", version=1, input=Order, key=lambda o: o.id)

    @made.step(repeat=Repeat.ASK_FIRST)
    async def charge(ctx: Context[Order]) -> None: ...

    @charge.probe(settle=timedelta(seconds=1))
    async def find(ctx: Context[Order]) -> Probe[None]:
        return Found(None)

    made.flow(charge)
    return made


@dataclass
class World:
    """A service with processes that live and one that is dead."""

    it: Rig
    saga: Saga[Order]
    live: UUID
    dead: UUID

    async def begin(self, name: str, worker: UUID | None = None) -> UUID:
        """Start a run; with a worker that has claimed its first step."""
        run = (await self.it.start(self.saga, Order(id=name))).id
        if worker is not None:
            change = await self.it.engine.change(run, Claim("send", worker))
            assert change is not None and change.decision.claimed is not None
        return run

    async def many(self, names: Sequence[str], worker: UUID | None = None) -> list[UUID]:
        """Start several at once."""
        return list(await asyncio.gather(*(self.begin(name, worker) for name in names)))

    async def lose(self, run: UUID, since: str = "10 minutes") -> None:
        """Let the work of a run be announced long ago, and be looked at in a while."""
        await self.it.database.pool.execute(
            "UPDATE milepost.step SET since = since - $2::text::interval, wake_at = now() + interval '5 minutes'"
            " WHERE run_id = $1 AND wake_at IS NOT NULL",
            run,
            since,
        )

    async def woken(self) -> set[UUID]:
        """The runs that are due because of a repair."""
        rows = await self.it.database.pool.fetch("SELECT run_id FROM milepost.step WHERE wake_at <= now()")
        return {row["run_id"] for row in rows}


LEASE = (
    "INSERT INTO milepost.worker (id, service, name, roles, queues, definitions, pins, expires_at)"
    " VALUES ($1, 'rig', $2, '{worker,compensator}', '{default}', '{}', $3, now() + $4::text::interval)"
)


@asynccontextmanager
async def world(it: Rig, saga: Saga[Order]) -> AsyncIterator[World]:
    """Give a rig a live process and a dead one; what was published has left."""
    live, dead = worker_id(), worker_id()
    pins = it.service.definitions.pins
    await it.database.pool.execute(LEASE, live, "live", pins, "1 hour")
    await it.database.pool.execute(LEASE, dead, "dead", pins, "-1 minute")
    yield World(it, saga, live, dead)


async def sent(it: Rig) -> None:
    """Let everything in the outbox have left, as a relay notes it."""
    await it.database.pool.execute(
        "INSERT INTO milepost.outbox_position (outbox, epoch, n, previous, current, last_seq, system_identifier)"
        " SELECT 'outbox', 1, coalesce(max(n), 0) + 1, pg_current_snapshot(), pg_current_snapshot(), 0, 0"
        " FROM milepost.outbox_position"
    )


@asynccontextmanager
async def passing(it: Rig, policies: Policies | None = None, **more: Any) -> AsyncIterator[Pass]:
    """A pass on a connection of its own, by the defaults."""
    options = {name: more.pop(name) for name in ("dry_run", "by", "proposals") if name in more}
    async with it.database.pool.acquire() as proxy:
        connection = cast("asyncpg.Connection[Any]", proxy)
        yield Pass(connection, policies or Policies(), Executor(ids=IDS, **options), service="rig", **more)


async def once(it: Rig, policies: Policies | None = None, **more: Any) -> list[Reconciled]:
    """Make a pass over everything."""
    async with passing(it, policies, **more) as looking:
        return await looking.every()


def outcomes(found: Sequence[Reconciled]) -> Counter[str]:
    """Count what became of what: "WORKER_LOST RETRY REPAIRED"."""
    return Counter(f"{one.observation.drift} {one.plan.action} {one.outcome}" for one in found)


def decided(found: Sequence[Reconciled]) -> set[tuple[str, str, str]]:
    """What was decided about what, without what needed nothing."""
    return {
        (one.observation.subject, one.plan.action.value, one.outcome.value)
        for one in found
        if one.outcome is not Outcome.NOTHING
    }


async def kept(pool: asyncpg.Pool[Any]) -> list[asyncpg.Record]:
    """The rows of decisions with the audit's entries of them."""
    return await pool.fetch(
        "SELECT c.*, a.act, a.actor AS who FROM milepost.reconciliation AS c"
        " LEFT JOIN milepost.audit AS a ON a.id = c.id WHERE c.drift <> '' ORDER BY c.at"
    )
