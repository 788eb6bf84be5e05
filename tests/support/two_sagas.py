"""A service with an ordinary saga and a CRITICAL one, its engine driven by hand, and a few people."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import asyncpg
from milepost import Context, Repeat, Risk, Saga
from milepost.consumers.carrying import Carrier
from milepost.consumers.workflows import register
from milepost.recovery.permissions import Actor, ActorKind, Grant, Role
from pydantic import BaseModel

from tests.support.engine import Rig, rig


class Order(BaseModel):
    id: str


def saga(name: str, severity: Risk = Risk.MEDIUM) -> Saga[Order]:
    made = Saga(name, version=1, input=Order, key=lambda order: order.id, severity=severity)

    @made.step(repeat=Repeat.NEVER)
    async def pack(ctx: Context[Order]) -> None: ...

    made.flow(pack)
    return made


ORDER, PAYMENT = saga("order"), saga("payment", Risk.CRITICAL)


def actor(
    name: str, *roles: Role, kind: ActorKind = ActorKind.PERSON, sagas: frozenset[str] | None = None
) -> Actor:
    return Actor(name, kind, tuple(Grant(role, None, sagas) for role in roles))


ANN, BOB = actor("Ann", Role.OPERATOR), actor("bob", Role.APPROVER)


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[tuple[Rig, asyncpg.Connection[Any]]]:
    async with rig(url, ORDER, PAYMENT) as it:
        await register(it.database.pool, "rig", it.service.definitions)
        async with it.database.pool.acquire() as connection:
            yield it, cast("asyncpg.Connection[Any]", connection)


async def turn(it: Rig) -> int:
    """Carry out what is asked for."""
    return await Carrier(it.engine, max_result_bytes=1000).turn()


async def entries(it: Rig) -> list[tuple[str, str, str, str]]:
    """Return the audit: actor, kind, act and outcome of each entry, in order."""
    rows = await it.database.pool.fetch("SELECT actor, kind, act, outcome FROM milepost.audit ORDER BY id")
    return [tuple(row) for row in rows]
