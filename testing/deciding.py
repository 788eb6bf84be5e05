"""What persons decide in a kit, through the same requests as at the command line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection
from typing import Any, Literal, cast
from uuid import UUID

import asyncpg
from pydantic import BaseModel

from ..consumers.carrying import Carrier
from ..recovery.permissions import EVERYTHING, Actor, ActorKind, Grant, Role
from ..recovery.requests import Request, ask
from ..recovery.seconding import confirm, held
from ..sagas.context import RunRef
from ..sagas.facts import ActName
from ..sagas.nodes import Node, Undo
from ..schemas.errors import StateError, UsageError
from ..streams.drivers import run_in
from .places import row_name
from .service import Opened
from .store import Sql


class Deciding:
    """The part of a kit that stands for persons."""

    _opened: Opened
    _turn: asyncio.Lock

    async def approve(
        self,
        run: RunRef,
        step: Node[Any, Any] | Undo[Any],
        *,
        by: str,
        reason: str,
        roles: Collection[str] | None = None,
    ) -> None:
        """Approve what an approval or an undo of the run waits for, as it stands there now.

        Args:
            run: Which run.
            step: The approval, or the undo.
            by: Who approves; a person counts once.
            reason: Why.
            roles: Those that the person has; by default those that are asked for.

        Raises:
            UsageError: MP375 when it is refused, with the reason; MP350 and MP355 as `until_step`, MP614 without by or
                reason.
        """
        await self._decide(run, step, "approve", by=by, reason=reason, roles=roles)

    async def reject(
        self,
        run: RunRef,
        step: Node[Any, Any] | Undo[Any],
        *,
        by: str,
        reason: str,
        roles: Collection[str] | None = None,
    ) -> None:
        """Reject what an approval or an undo of the run waits for; as `approve`."""
        await self._decide(run, step, "reject", by=by, reason=reason, roles=roles)

    async def confirm(self, run: RunRef, *, by: str, reason: str) -> None:
        """Confirm, as the second person, what was asked for and is CRITICAL; without that, such an act only waits.

        Args:
            run: The run that the act is about.
            by: Another person than the one who asked.
            reason: Why.

        Raises:
            UsageError: MP375 when the act is refused, MP355 as `until_step`, MP614 without by or reason.
            StateError: MP661 for the first person, MP662 when nothing waits.
        """
        await self._known(run)
        person = Actor(by, ActorKind.PERSON, (Grant(Role.APPROVER),))
        async with self._turn, self._opened.database.pool.acquire() as connection:
            waiting = await held(cast("asyncpg.Connection[Any]", connection), EVERYTHING, run=run.id)
            if not waiting:
                raise StateError("MP662", f"kit.confirm({run}): nothing of it waits for a second person.")
            one = waiting[0]
            await confirm(cast("asyncpg.Connection[Any]", connection), person, one, reason=reason)
        async with self._turn:
            await _answered(self._opened, one.id, f"kit.confirm({one.what})")

    async def retry(
        self,
        run: RunRef,
        step: Node[Any, Any] | Undo[Any],
        *,
        by: str,
        reason: str,
        did_not_happen: bool = False,
    ) -> None:
        """Have a step, wait or undo that stands in front of a person begin anew; of a fan-out, what failed.

        It moves with the next `until` or `advance`.

        Args:
            run: Which run.
            step: Which step, in its latest round.
            by: Who decides it.
            reason: Why.
            did_not_happen: A step in doubt took no effect, as the person has seen on the other side.

        Raises:
            UsageError: MP375 when it is refused, with the reason; MP350 and MP355 as `until_step`, MP614 without by or
                reason.
        """
        await self._act(run, "retry", by, reason, step=step, did_not_happen=did_not_happen)

    async def skip(self, run: RunRef, step: Node[Any, Any] | Undo[Any], *, by: str, reason: str) -> None:
        """Have the run go on without a step, wait or undo that stands in front of a person; as `retry`."""
        await self._act(run, "skip", by, reason, step=step)

    async def mark_succeeded(
        self,
        run: RunRef,
        step: Node[Any, Any] | Undo[Any],
        result: BaseModel | None = None,
        *,
        by: str,
        reason: str,
    ) -> None:
        """Say that a step, wait or undo that stands in front of a person took effect; as `retry`.

        Args:
            result: What it would have returned; None for what has no result.
        """
        plain = None if result is None else result.model_dump(mode="json")
        await self._act(run, "mark_succeeded", by, reason, step=step, result=plain)

    async def compensate(self, run: RunRef, *, by: str, reason: str) -> None:
        """Have a run that stands in front of a person undone; as `retry`."""
        await self._act(run, "compensate", by, reason)

    async def resume(self, run: RunRef, *, by: str, reason: str) -> None:
        """Have a run go on that stands still with nothing in its way; as `retry`."""
        await self._act(run, "resume", by, reason)

    async def cancel(self, run: RunRef, *, undo: bool, by: str, reason: str) -> None:
        """Have a run end early; as `retry`.

        Args:
            undo: Whether what was done is undone.
        """
        await self._act(run, "cancel", by, reason, undo=undo)

    async def _act(
        self,
        run: RunRef,
        what: ActName,
        by: str,
        reason: str,
        *,
        step: Node[Any, Any] | Undo[Any] | None = None,
        **more: Any,
    ) -> None:
        name = None if step is None else row_name(self._opened.service, run, step)
        await self._known(run)
        place = None
        if name is not None:
            place = await self._opened.database.pool.fetchrow(Sql.open_question, run.id, name)
        iteration = "" if place is None else place["iteration"]
        wanted = Request(run=run.id, what=what, by=by, reason=reason, step=name, iteration=iteration, **more)
        async with self._turn:
            await _carried_out(self._opened, wanted)

    async def _decide(
        self,
        run: RunRef,
        step: Node[Any, Any] | Undo[Any],
        what: Literal["approve", "reject"],
        *,
        by: str,
        reason: str,
        roles: Collection[str] | None,
    ) -> None:
        name = row_name(self._opened.service, run, step)
        row = await self._opened.database.pool.fetchrow(Sql.open_question, run.id, name)
        asked = {} if row is None or row["asked"] is None else json.loads(row["asked"])
        said = frozenset(asked.get("roles", ()) if roles is None else roles)
        seen = {"generation": asked.get("generation"), "hash": asked.get("hash")}
        await self._act(run, what, by, reason, step=step, roles=said, **seen)

    async def _known(self, run: RunRef) -> str:
        state: str | None = await self._opened.database.pool.fetchval(Sql.run_state, run.id)
        if state is None:
            raise UsageError(
                "MP355",
                f"run {run} ({run.id}) is not in this kit's database. Start it with kit.start() of the same kit.",
            )
        return state


async def _carried_out(opened: Opened, request: Request) -> None:
    call = f"kit.{request.what}({request.step or 'run'})"
    async with (
        opened.database.pool.acquire() as connection,
        connection.transaction(isolation="read_committed"),
    ):
        written = await ask(await run_in(connection, call), request, opened.service.ids, call)
    await _answered(opened, written, call)


async def _answered(opened: Opened, written: UUID, call: str) -> None:
    carrier = Carrier(opened.engine, max_result_bytes=opened.settings.max_result_bytes)
    answer = await carrier.carry_out(written)
    if answer is None and await opened.database.pool.fetchval(Sql.is_held, written):
        return
    if answer is None or not answer.accepted:
        why = "nobody of this service can carry it out" if answer is None else answer.text
        raise UsageError("MP375", f"{call}: refused: {why.rstrip('.')}.")
