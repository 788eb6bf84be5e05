"""Sagas with a lock, and a service with a lock driven by hand: messages are handed over by the test, or lost by it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

import asyncpg
from milepost import Context, Event, Repeat, Retry, RunRef, Saga
from milepost.sagas.facts import Claim, Stale, Succeeded, TryFailed
from milepost.schemas.messages import TimerMessage
from pydantic import BaseModel

from tests.support.engine import Rig, rig, worker_id

#: A line of the ledger: the run's key and what it did.
Line = tuple[str, str]


class Sale(BaseModel):
    """An order for something of which there is one."""

    order: str
    item: str = "tea"
    until: datetime | None = None


class Receipt(BaseModel):
    number: int


class Paid(Event, type="locks.paid", topic="payments", key="order", correlate="order"):
    order: str


ONCE = Retry(attempts=1)


def sale(
    name: str = "order",
    *,
    version: int = 1,
    lock: Callable[[Sale], Any] | None = None,
    if_locked: Literal["queue", "reject"] = "queue",
    **more: Any,
) -> Saga[Sale]:
    """Reserve, which can be undone; then ship."""
    made = Saga(
        name,
        version=version,
        input=Sale,
        key=lambda o: o.order,
        lock=lock or (lambda o: f"stock:{o.item}"),
        if_locked=if_locked,
        **more,
    )

    @made.step(repeat=Repeat.SAFE, retry=ONCE)
    async def reserve(ctx: Context[Sale]) -> Receipt:
        return Receipt(number=1)

    @reserve.undo(retry=ONCE)
    async def release(ctx: Context[Sale], done: Receipt) -> None:
        return None

    @made.step(repeat=Repeat.NEVER, retry=ONCE, no_undo="the last")
    async def ship(ctx: Context[Sale]) -> None:
        return None

    made.flow(reserve, ship)
    return made


def patient(then: Any, name: str = "patient") -> Saga[Sale]:
    """Waits for a payment, and then ends."""
    made = Saga(name, version=1, input=Sale, key=lambda o: o.order, lock=lambda o: f"stock:{o.item}")
    wait = made.wait("paid", Paid, match=lambda v: v.input.order, timeout=timedelta(hours=1), on_timeout=then)

    @made.step(repeat=Repeat.SAFE)
    async def ship(ctx: Context[Sale]) -> None:
        return None

    made.flow(wait, ship)
    return made


@dataclass
class Locks:
    """A service, and what its workers and messages do.

    Attributes:
        ledger: What the steps did, in order.
        read: Messages that were handed over, or lost.
    """

    it: Rig
    ledger: list[Line] = field(default_factory=list)
    read: set[UUID] = field(default_factory=set)

    async def start(self, saga: Saga[Sale], order: str, **more: Any) -> RunRef:
        """Start a run in a transaction of its own."""
        return await self.it.start(saga, Sale(order=order, **more))

    async def messages(self, type: str) -> list[dict[str, Any]]:
        """Return the bodies of new outbox rows of a type; each comes once."""
        query = "SELECT id, payload FROM milepost.outbox WHERE type = $1 ORDER BY seq"
        rows = await self.it.database.pool.fetch(query, type)
        fresh = [row for row in rows if row["id"] not in self.read]
        self.read.update(row["id"] for row in fresh)
        return [json.loads(row["payload"]) for row in fresh]

    async def look(self) -> list[UUID]:
        """Hand over what runs were told; returns whom."""
        bodies = await self.messages("milepost.timer")
        for body in bodies:
            await self.it.orchestrator.wake(TimerMessage.model_validate(body))
        return [UUID(body["run"]) for body in bodies]

    async def step(self, run: RunRef, name: str, *, fails: str = "") -> str:
        """Claim a step or undo and finish it; returns the run's state."""
        claim = await self.it.engine.change(run.id, Claim(name, worker_id()))
        assert claim is not None and claim.decision.claimed is not None, claim and claim.decision.reason
        self.ledger.append((run.key, name))
        fence = claim.decision.claimed.fence
        result = {"number": 1} if name == "reserve" else None
        fact = TryFailed(name, fence, "fatal", fails, "no") if fails else Succeeded(name, fence, result)
        change = await self.it.engine.change(run.id, fact)
        assert change is not None and change.decision.answer == "changed"
        return change.decision.run.state.value

    async def lose(self, run: RunRef, name: str) -> None:
        """Claim a step, and let the worker be gone."""
        claim = await self.it.engine.change(run.id, Claim(name, worker_id()))
        assert claim is not None and claim.decision.claimed is not None
        now = claim.before.now
        await self.it.engine.change(run.id, Stale(name, claim.decision.claimed.fence, now))

    async def sold(self, run: RunRef) -> None:
        """Do all of `sale`."""
        await self.step(run, "reserve")
        assert await self.step(run, "ship") == "SUCCEEDED"

    async def holder(self, item: str = "tea") -> UUID | None:
        """Return who has the lock."""
        found: UUID | None = await self.it.value(
            "SELECT run_id FROM milepost.resource WHERE name = $1", f"stock:{item}"
        )
        return found

    async def waiting(self) -> list[UUID]:
        """Return who stands in the queue, in order."""
        rows = await self.it.database.pool.fetch("SELECT run_id FROM milepost.resource_queue ORDER BY n")
        return [row["run_id"] for row in rows]

    async def begun(self, run: RunRef) -> bool:
        """Whether the run has a row."""
        return bool(await self.it.value("SELECT count(*) FROM milepost.step WHERE run_id = $1", run.id))


@asynccontextmanager
async def locks(url: str, *sagas: Saga[Any], **more: Any) -> AsyncIterator[Locks]:
    """Open a service on a database."""
    async with rig(url, *sagas, **more) as it:
        yield Locks(it)


async def blocked(connection: asyncpg.Connection[Any] | asyncpg.Pool[Any]) -> bool:
    """Whether somebody in this database waits for a lock."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    return bool(await connection.fetchval(query))
