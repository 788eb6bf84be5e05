"""A service that inspects which release runs where, as a file says, and is patient with workers that are gone."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path

from milepost import (
    Action,
    Compared,
    Context,
    Drift,
    Level,
    Looking,
    Milepost,
    Observation,
    Plan,
    Repeat,
    Saga,
)
from pydantic import BaseModel


class Release(BaseModel):
    commit: str


class RollBack(BaseModel):
    server: str


class Servers:
    """What runs where; the file INSPECTED has it."""

    def state(self) -> dict[str, str]:
        found: dict[str, str] = json.loads(Path(os.environ["INSPECTED"]).read_text())
        return found


roll_back = Saga("roll-back", version=1, input=RollBack, key=lambda r: r.server)


@roll_back.step(repeat=Repeat.SAFE)
async def deploy(ctx: Context[RollBack]) -> None: ...


roll_back.flow(deploy)
service = Milepost("rig", sagas=[roll_back])


@asynccontextmanager
async def servers() -> AsyncIterator[Servers]:
    yield Servers()


def decide(found: Compared[Release], now: datetime) -> Plan:
    return Plan(Action.ROLLBACK, Level.BOUNDED_REPAIR, "another release runs")


def patient(seen: Observation) -> Plan:
    return Plan(Action.NONE, Level.DETECT, "its worker comes back")


service.provide(Servers, servers)
service.policy(Drift.WORKER_LOST, patient)


@service.inspect("deploys", every=timedelta(seconds=1), policy=decide, auto_repair=Level.BOUNDED_REPAIR)
async def deploys(looking: Looking) -> AsyncIterator[Compared[Release]]:
    for name, commit in looking.use(Servers).state().items():
        yield Compared(key=name, desired=Release(commit="good"), actual=Release(commit=commit))


@deploys.repair(Action.ROLLBACK, roll_back)
def rolled_back(found: Compared[Release]) -> RollBack:
    return RollBack(server=found.key)
