"""Carrying acts on many out: one item at a time, each in a transaction that also says so in its row.

So a process that is killed has asked for an item and noted it, or neither; and another one goes on where it was. The
row of the bulk is locked meanwhile and says when the next item may begin, which bounds the rate over all processes.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any, cast
from uuid import UUID

import asyncpg

from ..schemas.errors import MilepostError, StateError
from ..schemas.ids import Ids, SystemIds
from ..streams.database import CANNOT_CONNECT
from ..streams.lifecycle import Health, Stop
from . import audit
from .acting import Attempt, ask_for, keep_refusal, refuse
from .bulk import OF_LETTERS, OF_QUESTIONS, OF_STEPS, Bulk, Sql, bulks, no_bulk
from .letters import LetterAct, act_on
from .permissions import EVERYTHING, Act, Actor, ActorKind, Grant, Role, scope_of
from .requests import Confirmed, Request

logger = logging.getLogger("milepost")

_IDS = SystemIds()
#: Seconds between two looks when nothing is to be done.
POLL = 0.5
_CONTROLS = {
    "pause": ("PAUSED", frozenset({"RUNNING"})),
    "resume": ("RUNNING", frozenset({"PAUSED"})),
    "stop": ("STOPPED", frozenset({"HELD", "RUNNING", "PAUSED"})),
    "confirm": ("RUNNING", frozenset({"HELD"})),
}


async def carry(connection: asyncpg.Connection[Any], bulk: UUID | None = None, *, ids: Ids = _IDS) -> bool:
    """Carry one item out that is due, in a transaction of its own.

    Args:
        bulk: Only of this one; None for whichever is due.

    Returns:
        Whether there was one.
    """
    row = None
    try:
        async with connection.transaction(isolation="read_committed"):
            await connection.execute(Sql.hardly_wait)
            row = await connection.fetchrow(Sql.take, bulk)
            if row is None:
                return False
            if not await connection.fetchval(Sql.still, row["id"], row["n"]):
                return True  # somebody has done it between the look and the lock
            await _ask(connection, row, ids)
            await connection.execute(Sql.next, row["id"], 0.0)
    except asyncpg.LockNotAvailableError:
        if row is not None:  # the letter is being handled: later
            await connection.execute(Sql.next, row["id"], 1.0)
    except (MilepostError, asyncpg.DataError, asyncpg.IntegrityConstraintViolationError) as error:
        if row is None:
            raise
        # One item that cannot be asked for must not keep the others from it.
        await connection.execute(
            Sql.done, row["id"], row["n"], "REFUSED", getattr(error, "code", None), str(error)[:1000]
        )
        await connection.execute(Sql.next, row["id"], 0.0)
    return True


async def _ask(connection: asyncpg.Connection[Any], row: asyncpg.Record, ids: Ids) -> None:
    actor = Actor(row["by"], ActorKind(row["kind"]), _grants(json.loads(row["grants"])))
    place = (row["id"], row["n"])
    if row["act"] in OF_LETTERS:
        act = cast("LetterAct", row["act"])
        done = await act_on(connection, actor, act, row["letter"], reason=row["reason"], ids=ids)
        if done.word == "ASKED":
            await connection.execute(Sql.asked, *place, None)
        else:
            await connection.execute(Sql.done, *place, done.word, done.code, done.text)
        return
    if await _other_by_now(connection, row):
        await _refuse(connection, actor, row, ids)
        return
    asked = await ask_for(connection, actor, _request(row), ids=ids, call=f"bulk {row['act']}")
    if asked.request is None:
        await connection.execute(Sql.done, *place, "REFUSED", asked.code, asked.text)
    else:
        await connection.execute(Sql.asked, *place, asked.request)


async def _other_by_now(connection: asyncpg.Connection[Any], row: asyncpg.Record) -> bool:
    """Say whether a whole run is no longer in a state, or stands for another reason, than what was chosen by."""
    chosen: Mapping[str, Any] = json.loads(row["chosen"])
    states, code = chosen.get("state", []), chosen.get("code")
    if row["act"] in OF_STEPS | OF_QUESTIONS or not (states or code):
        return False
    return await connection.fetchval(Sql.fits, row["run_id"], states, code) is False


async def _refuse(connection: asyncpg.Connection[Any], actor: Actor, row: asyncpg.Record, ids: Ids) -> None:
    """Leave a run alone that is not as it was chosen, and keep that."""
    text = "it is not as it was chosen any more: its state or its code is another one"
    attempt = Attempt(
        act=Act(row["act"]),
        name=f"run.{row['act']}",
        reason=row["reason"],
        tenant=row["tenant"],
        saga=row["saga"],
        run=row["run_id"],
        evidence={"bulk": str(row["id"]), "chosen": json.loads(row["chosen"])},
    )
    await keep_refusal(connection, actor, attempt, text, ids=ids)
    await connection.execute(Sql.done, row["id"], row["n"], "REFUSED", None, text)


def _request(row: asyncpg.Record) -> Request:
    arguments: Mapping[str, Any] = json.loads(row["arguments"])
    second = None
    if row["confirmed_by"] is not None:
        second = Confirmed(row["confirmed_by"], row["confirm_reason"])
    return Request(
        run=row["run_id"],
        what=row["act"],
        by="",
        reason=row["reason"],
        step=row["step"],
        iteration=row["iteration"],
        fence=row["fence"],
        generation=row["generation"] if row["act"] in {"approve", "reject"} else None,
        hash=row["hash"] if row["act"] in {"approve", "reject"} else None,
        result=arguments.get("result"),
        undo=arguments.get("undo"),
        did_not_happen=bool(arguments.get("did_not_happen", False)),
        roles=frozenset(arguments.get("roles", ())),
        confirmed=second,
    )


def _grants(found: list[dict[str, Any]]) -> tuple[Grant, ...]:
    return tuple(
        Grant(
            Role(one["role"]),
            None if one["tenants"] is None else frozenset(one["tenants"]),
            None if one["sagas"] is None else frozenset(one["sagas"]),
        )
        for one in found
    )


async def settle(connection: asyncpg.Connection[Any], bulk: UUID | None = None) -> None:
    """Note what has become of items that were asked for, and which bulks are done; twice changes nothing more."""
    for row in await connection.fetch(Sql.unsettled, bulk):
        await connection.execute(Sql.settle_requests, row["bulk"])
        await connection.execute(Sql.settle_letters, row["bulk"])
    await connection.execute(Sql.finish, bulk)


async def due_in(connection: asyncpg.Connection[Any], bulk: UUID | None = None) -> float | None:
    """Return in how many seconds the next item may begin; None when none waits."""
    found: float | None = await connection.fetchval(Sql.due, bulk)
    return found


async def control(
    connection: asyncpg.Connection[Any], actor: Actor, id: UUID, what: str, *, reason: str, ids: Ids = _IDS
) -> Bulk:
    """Pause, resume, stop or confirm an act on many, in a transaction of its own.

    What has been asked for already gets its outcome all the same; what is stopped does not go on.

    Args:
        what: pause, resume, stop, or confirm, which is the second person's yes.

    Raises:
        StateError: MP660 when that is not permitted, MP661 when the first person confirms, MP672 there is no such bulk,
            MP673 it is not in a state for that.
    """
    found = await bulks(connection, EVERYTHING, id=id)
    if not found:
        raise no_bulk(id)
    act = Act.CONFIRM if what == "confirm" else Act.CONTROL_BULK
    attempt = Attempt(
        act=act, name=f"bulk.{what}", reason=reason, evidence={"bulk": str(id), "act": found[0].act}
    )
    if not await bulks(connection, scope_of(actor, act), id=id):
        text = f"{actor.name} may not {what} acts on many that go so far"
        await keep_refusal(connection, actor, attempt, text, ids=ids)
        raise StateError("MP660", f"{text}. Ask somebody who may, or for that role.")
    if actor.kind is not ActorKind.PERSON:
        refused = await refuse(connection, actor, attempt, ids=ids)
        if refused is not None:
            raise refused
    state, before = _CONTROLS[what]
    async with connection.transaction(isolation="read_committed"):
        row = await connection.fetchrow(Sql.lock, id)
        assert row is not None, "bulks are not removed"
        problem = _problem(row, actor, what, before)
        if problem is None:
            second = (actor.name, reason.strip()) if what == "confirm" else (None, None)
            await connection.execute(Sql.control, id, state, *second)
            if what == "stop":
                await connection.execute(Sql.give_up, id)
            entry = audit.Entry(
                act=attempt.name,
                reason=reason,
                before={"bulk": row["state"]},
                after={"bulk": state},
                evidence=attempt.evidence,
            )
            await audit.write(connection, actor, entry, ids)
        else:
            await keep_refusal(connection, actor, attempt, str(problem), ids=ids)
    if problem is not None:
        raise problem
    return (await bulks(connection, EVERYTHING, id=id))[0]


def _problem(row: asyncpg.Record, actor: Actor, what: str, before: frozenset[str]) -> StateError | None:
    if row["state"] not in before:
        words = " or ".join(sorted(before))
        return StateError("MP673", f"bulk {what}: it is {row['state']}, and only what is {words} can be.")
    if what == "confirm" and row["by"].strip().casefold() == actor.name.strip().casefold():
        return StateError("MP661", f"{actor.name} has begun it, so somebody else has to confirm it.")
    return None


class BulkCarrier:
    """The part of the role upkeep that carries acts on many out; several processes may run it.

    Args:
        pool: Where they are.
    """

    name = "bulk"

    def __init__(self, pool: asyncpg.Pool[Any]) -> None:
        self._pool = pool
        self._trouble: str | None = None
        self._done = 0

    async def run(self, stop: Stop) -> None:
        """Look again and again until asked to stop."""
        while not stop.asked:
            await stop.wait(await self._turn())

    async def _turn(self) -> float:
        """Carry out what is due; return in how many seconds to look again."""
        try:
            async with self._pool.acquire(timeout=30.0) as proxy:
                connection = cast("asyncpg.Connection[Any]", proxy)
                while await carry(connection):
                    self._done += 1
                await settle(connection)
                pause = await due_in(connection)
        except (asyncpg.PostgresError, asyncpg.InterfaceError, MilepostError, *CANNOT_CONNECT) as error:
            if self._trouble is None:
                logger.warning("bulk: %s: %s; trying again", type(error).__name__, error)
            self._trouble = f"{type(error).__name__}: {error}"
            return POLL
        self._trouble = None
        return POLL if pause is None else min(POLL, pause)

    def health(self) -> Health:
        """Red while the database does not let it."""
        return Health(self._trouble is None, self._trouble or f"{self._done} items begun")
