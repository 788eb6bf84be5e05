"""The table of operations. Every change is one conditional statement; a claim is mine when it returns a row."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from ..schemas.ids import Ids
from ..schemas.options import Repeat
from ..streams.queries import Queries
from .operation_model import Asked, Ending, Name, Operation, OperationState
from .withdrawal import may_be_committed, withdraw_later

if TYPE_CHECKING:
    import asyncpg


class _Sql(Queries, file="operations.sql"):
    begin: str
    read: str
    claim: str
    claim_anew: str
    renew: str
    absent: str
    finish: str
    mark_lost: str


#: How long a free connection and its answer are waited for, in seconds.
ANSWER_WITHIN = 10.0
#: Fences of one record rise by 1 to 2**32 a claim, so that two who try the same claim have different ones;
#: bigint leaves room for two thousand million claims.
_FENCES = 0xFFFF_FFFF


class Hold(NamedTuple):
    """An operation that this process has claimed."""

    name: Name
    id: UUID
    fence: int


@dataclass(frozen=True)
class Operations:
    """Records on a pool; every statement is a transaction of its own.

    Args:
        pool: Database.
        service: Who claims.
        ids: For new records.
        lease: How long a claim holds without renewal.
    """

    pool: asyncpg.Pool[Any]
    service: str
    ids: Ids
    lease: timedelta

    async def _row(self, query: str, *arguments: object) -> asyncpg.Record | None:
        """Ask for a row; a pool whose connections all wait for this very operation must not be waited for."""
        async with asyncio.timeout(ANSWER_WITHIN):
            return await self.pool.fetchrow(query, *arguments)

    async def _claimed(
        self,
        query: str,
        *arguments: object,
        hold: Hold,
        before: Operation | None = None,
        tried: bool = True,
    ) -> Hold | None:
        """Claim under an identity that was chosen beforehand; a claim whose answer is lost is taken back.

        Args:
            before: The record that is claimed; None when it counts as new.
            tried: Whether the claim counts as an attempt.
        """
        sent, row = False, None
        try:
            async with asyncio.timeout(ANSWER_WITHIN), self.pool.acquire() as connection:
                sent = True
                row = await connection.fetchrow(query, *arguments)
                sent = row is not None
        except BaseException as error:
            if sent and (row is not None or may_be_committed(error)):
                withdraw_later(self.pool, hold.name, (hold.id, hold.fence), before=before, tried=tried)
            raise
        return None if row is None else hold

    async def begin(self, name: Name, asked: Asked, keep: timedelta) -> Hold | None:
        """Claim an operation that nobody has asked for before; None when there is a record."""
        hold = Hold(name, self.ids.new(), 1)
        return await self._claimed(
            _Sql.begin,
            *name,
            hold.id,
            self.service,
            asked.fingerprint,
            asked.repeat.value,
            self.lease,
            keep,
            hold.fence,
            hold=hold,
        )

    async def read(self, name: Name) -> tuple[Operation, datetime] | None:
        """Return the record and the database's time; None when there is no record."""
        row = await self._row(_Sql.read, *name)
        if row is None:
            return None
        columns = dict(row)
        now = columns.pop("now")
        headers = json.loads(columns.pop("response_headers") or "{}")
        columns["state"] = OperationState(columns["state"])
        return Operation(**columns, response_headers=headers), now

    async def claim(
        self, name: Name, record: Operation, repeat: Repeat, keep: timedelta, *, doubt_at: datetime | None
    ) -> Hold | None:
        """Claim a record as it was read; None when somebody else has changed it since.

        Args:
            doubt_at: To be asked about, not yet done again; None: to be done.
        """
        hold = Hold(name, record.id, record.fence + 1 + (self.ids.new().int & _FENCES))
        return await self._claimed(
            _Sql.claim,
            *name,
            record.fence,
            record.state.value,
            repeat.value,
            self.service,
            self.lease,
            keep,
            doubt_at,
            hold.fence,
            hold=hold,
            before=record,
            tried=doubt_at is None,
        )

    async def claim_anew(self, name: Name, record: Operation, asked: Asked, keep: timedelta) -> Hold | None:
        """Claim a record that has expired, as if there were none; None when somebody else was first."""
        hold = Hold(name, self.ids.new(), record.fence + 1)
        return await self._claimed(
            _Sql.claim_anew,
            *name,
            record.fence,
            record.state.value,
            asked.repeat.value,
            self.service,
            self.lease,
            keep,
            asked.fingerprint,
            hold.id,
            hold=hold,
        )

    async def renew(self, hold: Hold) -> bool:
        """Extend the lease; False when it had already ended, or somebody else has it."""
        return bool(await self.pool.fetchval(_Sql.renew, *hold.name, hold.fence, self.lease))

    async def absent(self, hold: Hold) -> bool:
        """Note that the effect is absent for certain and is caused now; False when the lease had ended."""
        return bool(await self.pool.fetchval(_Sql.absent, *hold.name, hold.fence, self.lease))

    async def finish(self, hold: Hold, ending: Ending) -> bool:
        """End a held operation; False when somebody else has it by now."""
        return bool(
            await self.pool.fetchval(
                _Sql.finish,
                *hold.name,
                hold.fence,
                ending.state.value,
                ending.definite,
                ending.ask_after,
                ending.keep,
                ending.doubt_at,
                ending.result,
                ending.response_code,
                ending.response_headers,
                ending.response_body,
                ending.resource_type,
                ending.resource_id,
                ending.code,
                ending.message,
                ending.doubt,
            )
        )

    async def mark_lost(self, name: Name, record: Operation, code: str, message: str) -> bool:
        """Mark a RUNNING record whose lease has ended UNKNOWN; False when somebody else was first."""
        return bool(await self.pool.fetchval(_Sql.mark_lost, *name, record.fence, code, message))
