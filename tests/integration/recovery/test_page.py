"""The examples of docs/recovery.md run as they stand there."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from milepost import Context, Drift, HealthCheck, Repeat, Saga, Traffic
from milepost.consumers.inspecting import Inspecting
from milepost.recovery.executor import Executor
from milepost.recovery.model import Outcome
from milepost.schemas.ids import SystemIds
from pydantic import BaseModel

from tests.support.drifting import Order, parcel
from tests.support.engine import rig
from tests.support.house import ROOT

BLOCKS = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs" / "recovery.md").read_text(), re.M | re.S)


class RollBack(BaseModel):
    server: str
    to: str


@dataclass
class State:
    wanted: str
    running: str
    checks: list[HealthCheck]
    traffic: Traffic


class Servers:
    """What the example's service knows: production fails its health checks, staging is as it should be."""

    async def state(self, name: str) -> State:
        now = datetime.now(UTC)
        checks = [HealthCheck(at=now - timedelta(seconds=n + 1), ok=False) for n in range(9)]
        bad = name == "production"
        return State("good", "bad" if bad else "good", checks if bad else [], Traffic())


async def test_the_examples_do_what_the_page_says(database_url: str) -> None:
    roll_back = Saga("roll-back", version=1, input=RollBack, key=lambda r: f"{r.server}-{r.to}")

    @roll_back.step(repeat=Repeat.SAFE)
    async def deploy(ctx: Context[RollBack]) -> None: ...

    roll_back.flow(deploy)
    order: Saga[Order] = parcel()
    async with rig(database_url, order, roll_back) as it:
        known: dict[str, Any] = {
            "service": it.service,
            "order": order,
            "Servers": Servers,
            "RollBack": RollBack,
        }
        known["roll_back"] = roll_back
        assert len(BLOCKS) == 3
        for block in BLOCKS:
            exec(compile(block, "docs/recovery.md", "exec", dont_inherit=True), known)
        assert (Drift.WORKER_LOST, "parcel") in it.service.policies.given
        async with it.database.pool.acquire() as connection:
            executor = Executor(ids=SystemIds())
            looking = Inspecting(it.service, connection, executor, lambda kind: Servers())  # type: ignore[arg-type]
            (found,) = await looking.look(it.service.inspections["deploys"])
        assert found.outcome is Outcome.REPAIRED and "9 of 9 health checks" in found.plan.reason
        assert await it.value("SELECT key FROM milepost.run") == "production-good"
