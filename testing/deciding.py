"""Approving and rejecting in a kit, through the same requests as at the command line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

from ..consumers.carrying import Carrier
from ..consumers.requests import Request, ask
from ..sagas.context import RunRef
from ..sagas.nodes import Node, Undo
from ..schemas.errors import UsageError
from ..streams.drivers import run_in
from .places import row_name
from .service import Opened
from .store import Sql


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a person says to a question."""

    what: Literal["approve", "reject"]
    by: str
    reason: str
    roles: Collection[str] | None


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
        await self._decide(run, step, Wanted("approve", by, reason, roles))

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
        await self._decide(run, step, Wanted("reject", by, reason, roles))

    async def _decide(self, run: RunRef, step: Node[Any, Any] | Undo[Any], wanted: Wanted) -> None:
        name = row_name(self._opened.service, run, step)
        await self._known(run)
        async with self._turn:
            await _carried_out(self._opened, run, name, wanted)

    async def _known(self, run: RunRef) -> str:
        state: str | None = await self._opened.database.pool.fetchval(Sql.run_state, run.id)
        if state is None:
            raise UsageError(
                "MP355",
                f"run {run} ({run.id}) is not in this kit's database. Start it with kit.start() of the same kit.",
            )
        return state


async def _carried_out(opened: Opened, run: RunRef, name: str, wanted: Wanted) -> None:
    pool, call = opened.database.pool, f"kit.{wanted.what}({name})"
    row = await pool.fetchrow(Sql.open_question, run.id, name)
    asked = {} if row is None or row["asked"] is None else json.loads(row["asked"])
    request = Request(
        run=run.id,
        what=wanted.what,
        by=wanted.by,
        reason=wanted.reason,
        step=name,
        iteration="" if row is None else row["iteration"],
        generation=asked.get("generation"),
        hash=asked.get("hash"),
        roles=frozenset(asked.get("roles", ()) if wanted.roles is None else wanted.roles),
    )
    async with pool.acquire() as connection, connection.transaction(isolation="read_committed"):
        written = await ask(await run_in(connection, call), request, opened.service.ids, call)
    carrier = Carrier(opened.engine, max_result_bytes=opened.settings.max_result_bytes)
    answer = await carrier.carry_out(written)
    if answer is None or not answer.accepted:
        why = "nobody of this service can carry it out" if answer is None else answer.text
        raise UsageError("MP375", f"{call}: refused: {why.rstrip('.')}.")
