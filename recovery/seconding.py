"""The second person: an act of CRITICAL consequence waits until somebody else than the first has confirmed it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg

from ..schemas.errors import StateError
from ..schemas.ids import Ids, SystemIds
from .acting import Attempt, keep_refusal, refuse
from .permissions import Act, Actor, Scope
from .requests import Sql, check_words

_IDS = SystemIds()


@dataclass(frozen=True, slots=True)
class Held:
    """A request that waits for a second person.

    Attributes:
        run: The run's saga and key, or its id when its details are gone.
        undo: Of a cancel: whether what was done is undone.
        by: Who asked for it, and so may not confirm it.
    """

    id: UUID
    tenant: str
    service: str
    run_id: UUID
    run: str
    saga: str | None
    what: str
    step: str | None
    iteration: str
    undo: bool | None
    by: str
    kind: str
    reason: str
    at: datetime
    held_at: datetime


async def held(
    connection: asyncpg.Connection[Any],
    scope: Scope,
    *,
    request: UUID | None = None,
    run: UUID | None = None,
    limit: int = 100,
) -> list[Held]:
    """List requests that wait for a second person, the oldest first.

    Args:
        request: Only this one.
        run: Only those for this run.
        limit: At most so many.
    """
    rows = await connection.fetch(Sql.find_held, request, run, *scope.parameters(), limit)
    return [_held(row) for row in rows]


def _held(row: asyncpg.Record) -> Held:
    fields = {name: row[name] for name in row.keys() if name != "key"}  # noqa: SIM118 - a record's keys
    return Held(run=f"{row['saga']}/{row['key']}" if row["saga"] else str(row["run_id"]), **fields)


async def confirm(
    connection: asyncpg.Connection[Any], actor: Actor, one: Held, *, reason: str, ids: Ids = _IDS
) -> UUID:
    """Confirm a held request as the second person; the service then carries it out.

    Args:
        one: As it was looked at.
        reason: Why, for the audit.

    Returns:
        The audit entry's id.

    Raises:
        UsageError: MP614 when who or why is not said.
        StateError: MP660 when that is not permitted, MP661 for the first person, MP662 when it does not wait any more.
    """
    attempt = _attempt(one, Act.CONFIRM, reason)
    await _let(connection, actor, attempt, ids)
    if one.by.strip().casefold() == actor.name.strip().casefold():
        text = f"{one.run}: {actor.name} has asked for {one.what}, so somebody else has to confirm it"
        await keep_refusal(connection, actor, attempt, text, ids=ids)
        raise StateError("MP661", f"{text}.")
    done: UUID | None = await connection.fetchval(
        Sql.confirm, one.id, actor.name.strip(), reason.strip(), ids.new()
    )
    if done is None:
        raise await _over(connection, actor, attempt, one, ids)
    return done


async def decline(
    connection: asyncpg.Connection[Any], actor: Actor, one: Held, *, reason: str, ids: Ids = _IDS
) -> UUID:
    """Say no to a held request, which is refused; the first person may take it back so.

    Arguments, result and errors as `confirm`.
    """
    attempt = _attempt(one, Act.DECLINE, reason)
    await _let(connection, actor, attempt, ids)
    done: UUID | None = await connection.fetchval(
        Sql.decline, one.id, actor.name.strip(), reason.strip(), ids.new()
    )
    if done is None:
        raise await _over(connection, actor, attempt, one, ids)
    return done


def _attempt(one: Held, act: Act, reason: str) -> Attempt:
    return Attempt(
        act=act,
        name=f"request.{act.value}",
        reason=reason,
        tenant=one.tenant,
        saga=one.saga,
        run=one.run_id,
        evidence={"request": str(one.id), "act": f"run.{one.what}", "first": one.by},
    )


async def _let(connection: asyncpg.Connection[Any], actor: Actor, attempt: Attempt, ids: Ids) -> None:
    check_words(attempt.name, by=actor.name, reason=attempt.reason)
    refused = await refuse(connection, actor, attempt, ids=ids)
    if refused is not None:
        raise refused


async def _over(
    connection: asyncpg.Connection[Any], actor: Actor, attempt: Attempt, one: Held, ids: Ids
) -> StateError:
    row = await connection.fetchrow(Sql.request, one.id)
    state = "gone" if row is None else row["state"]
    text = f"{one.run}: {one.what} of {one.by} does not wait for a second person any more, it is {state}"
    await keep_refusal(connection, actor, attempt, text, ids=ids)
    return StateError("MP662", f"{text}.")
