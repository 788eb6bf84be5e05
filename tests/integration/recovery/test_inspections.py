"""What a service inspects itself: compared, decided, and repaired by a run that is begun once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from milepost import (
    Action,
    Compared,
    Context,
    Drift,
    HealthCheck,
    Inspection,
    Level,
    Looking,
    Milepost,
    Plan,
    Repeat,
    Saga,
    Signs,
    roll_back_plan,
)
from milepost.consumers.inspecting import Inspecting
from milepost.consumers.reconciler import Reconciler
from milepost.recovery.executor import Executor
from milepost.recovery.model import Outcome, Reconciled
from milepost.schemas.errors import DefinitionError
from milepost.schemas.ids import SystemIds
from milepost.streams.lifecycle import Stop
from pydantic import BaseModel

from tests.support.drifting import kept
from tests.support.engine import Rig, rig
from tests.support.waiting import until

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Release(BaseModel):
    commit: str


class RollBack(BaseModel):
    server: str
    to: str


@dataclass
class Servers:
    """What runs where, as far as the outside knows."""

    running: dict[str, str] = field(default_factory=dict)
    failing: bool = False
    looks: int = 0

    def checks(self, now: datetime) -> list[HealthCheck]:
        """The last health checks."""
        return [HealthCheck(at=now - timedelta(seconds=n), ok=not self.failing) for n in range(5)]


def roll_back() -> Saga[RollBack]:
    made = Saga("roll-back", version=1, input=RollBack, key=lambda r: f"{r.server}-{r.to}")

    @made.step(repeat=Repeat.SAFE)
    async def deploy(ctx: Context[RollBack]) -> None: ...

    made.flow(deploy)
    return made


@dataclass
class Stage:
    it: Rig
    servers: Servers
    deploys: Inspection[Release]

    async def look(self, **more: Any) -> list[Reconciled]:
        """Call the inspection once, whether or not it is due."""
        async with self.it.database.pool.acquire() as connection:
            executor = Executor(ids=SystemIds(), **more)
            looking = Inspecting(self.it.service, connection, executor, lambda kind: self.servers)  # type: ignore[arg-type]
            return await looking.look(self.deploys)

    async def runs(self) -> list[str]:
        """Keys of the runs that repair."""
        rows = await self.it.database.pool.fetch("SELECT key FROM milepost.run ORDER BY key")
        return [row["key"] for row in rows]


def by_signs(found: Compared[Release], now: datetime) -> Plan:
    return roll_back_plan(found.facts, now, wanted="it runs another commit")


def declare(
    service: Milepost, saga: Saga[RollBack], policy: Callable[..., Plan] | None
) -> Inspection[Release]:
    """The inspection of docs/recovery.md."""

    @service.inspect("deploys", every=timedelta(minutes=5), policy=policy, auto_repair=Level.BOUNDED_REPAIR)
    async def deploys(looking: Looking) -> AsyncIterator[Compared[Release]]:
        servers = looking.use(Servers)
        servers.looks += 1
        if not servers.running:
            raise OSError("the servers do not answer")
        for name, commit in servers.running.items():
            signs = Signs(checks=servers.checks(datetime.now(UTC) + timedelta(seconds=1)))
            yield Compared(
                key=name, desired=Release(commit="good"), actual=Release(commit=commit), facts=signs
            )

    @deploys.repair(Action.ROLLBACK, saga)
    def rolled_back(found: Compared[Release]) -> RollBack:
        return RollBack(server=found.key, to=found.desired.commit)

    return deploys


@asynccontextmanager
async def stage(url: str, policy: Callable[..., Plan] | None = by_signs) -> AsyncIterator[Stage]:
    saga = roll_back()
    async with rig(url, saga) as it:
        yield Stage(it, Servers({"production": "good", "staging": "good"}), declare(it.service, saga, policy))


async def test_a_release_that_fails_is_taken_back_once_and_by_a_run(database_url: str) -> None:
    async with stage(database_url) as at:
        assert await at.look() == [], "all is well"
        at.servers.running["production"], at.servers.failing = "bad", True
        dry = await at.look(dry_run=True)
        assert [one.outcome for one in dry] == [Outcome.REPAIRED] and await at.runs() == []
        both = await asyncio.gather(at.look(), at.look())
        outcomes = sorted(one.outcome for found in both for one in found)
        assert outcomes in (["ALREADY", "REPAIRED"], ["NOTHING", "REPAIRED"])
        assert await at.runs() == ["production-good"]
        (row,) = await kept(at.it.database.pool)
        assert (row["drift"], row["decision"], row["after"]) == (
            *("INSPECTED", "ROLLBACK"),
            "run roll-back/production-good started",
        )
        assert (
            row["run_id"] is None and '"bad"' in row["evidence"] and "health checks failed" in row["reason"]
        )
        assert {one.outcome for one in await at.look()} == {Outcome.NOTHING}, "it was begun a moment ago"


async def test_without_the_stated_conditions_a_person_is_asked_and_nothing_happens(database_url: str) -> None:
    async with stage(database_url) as at:
        at.servers.running["staging"] = "other"
        (found,) = await at.look()
        assert (found.plan.action, found.plan.level) == (Action.ROLLBACK, Level.APPROVAL)
        assert found.outcome in {Outcome.PROPOSED, Outcome.ESCALATED} and await at.runs() == []
        assert [one.outcome for one in await at.look()] == [Outcome.ALREADY]


async def test_what_cannot_be_seen_is_neither_well_nor_drifted(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with stage(database_url) as at:
        at.servers.running.clear()
        with caplog.at_level(logging.ERROR, "milepost"):
            assert await at.look() == []
        assert "MP652" in caplog.text and "do not answer" in caplog.text
        assert await kept(at.it.database.pool) == []


async def test_a_repair_that_cannot_begin_is_told_and_keeps_nobody_from_the_others(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with stage(database_url) as at:
        at.servers.running.update(production="bad", staging="bad")
        at.servers.failing = True
        saga, _ = at.deploys.repairs[Action.ROLLBACK]

        def only_staging(found: Compared[Release]) -> RollBack:
            if found.key == "production":
                raise KeyError("no such server")
            return RollBack(server=found.key, to=found.desired.commit)

        at.deploys.repairs[Action.ROLLBACK] = (saga, only_staging)
        with caplog.at_level(logging.ERROR, "milepost"):
            assert [one.outcome for one in await at.look()] == [Outcome.REPAIRED]
        assert (
            await at.runs() == ["staging-good"] and "MP652" in caplog.text and "no such server" in caplog.text
        )
        assert len(await kept(at.it.database.pool)) == 1


async def test_by_default_persons_are_told(database_url: str) -> None:
    async with stage(database_url, None) as at:
        at.servers.running["staging"] = "other"
        assert [(one.plan.action, one.outcome) for one in await at.look()] == [
            (Action.ESCALATE, Outcome.ESCALATED)
        ]


async def test_the_role_looks_when_it_is_due_in_one_process_at_a_time(database_url: str) -> None:
    async with stage(database_url) as at:
        at.servers.running["production"], at.servers.failing = "bad", True

        @asynccontextmanager
        async def connect() -> AsyncIterator[Servers]:
            yield at.servers

        at.it.service.provide(Servers, connect)
        stop = Stop(at.it.service.clock, timedelta(seconds=5))
        roles = [Reconciler(at.it.service, at.it.database) for _ in range(2)]
        tasks = [asyncio.create_task(role.run(stop)) for role in roles]

        async def begun() -> bool:
            return await at.runs() == ["production-good"]

        await until(begun, what="the repair")
        assert at.servers.looks == 1
        assert all(role.health().ok for role in roles), [role.health() for role in roles]
        stop.ask()
        await asyncio.gather(*tasks)
        passes = await at.it.value("SELECT passed_at IS NOT NULL FROM milepost.reconciler")
        assert passes and at.servers.looks == 1


@pytest.mark.parametrize(
    "wrong",
    [
        lambda service: service.inspect("no spaces", every=timedelta(minutes=1))(none),
        lambda service: service.inspect("x", every=timedelta(0))(none),
        lambda service: [service.inspect("x", every=timedelta(minutes=1))(none) for _ in range(2)],
        lambda service: service.inspect("x", every=timedelta(minutes=1))(none).repair(
            Action.NONE, roll_back()
        ),
        lambda service: service.policy(Drift.INSPECTED, none),
        lambda service: service.policy(Drift.UNKNOWN),
        lambda service: [service.policy(Drift.UNKNOWN, after=timedelta(hours=1)) for _ in range(2)],
    ],
)
def test_what_means_nothing_is_refused_where_it_is_declared(wrong: Callable[[Any], object]) -> None:
    with pytest.raises(DefinitionError, match="MP650"):
        wrong(Milepost("shop"))


async def none(looking: Looking) -> AsyncIterator[Compared[Release]]:
    return
    yield
