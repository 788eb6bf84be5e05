"""Claims whose answer was lost: nobody runs them, so they are taken back, or their key would be used up for nothing."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any
from uuid import UUID

import asyncpg

from ..streams.queries import Queries

if TYPE_CHECKING:
    from .operation_model import Name, Operation

logger = logging.getLogger("milepost")


class _Sql(Queries, file="withdrawal.sql"):
    withdraw: str
    give_back: str


#: Pauses before the tries, in seconds: about a minute in all, so that a statement which is still under way is met too.
PAUSES = (0.0, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
#: How long one try may take, in seconds.
TRY_WITHIN = 10.0

_tasks: set[asyncio.Task[None]] = set()


def may_be_committed(error: BaseException) -> bool:
    """Tell whether a statement of its own transaction may have taken effect though it ended with this error.

    What the server reports is rolled back; a lost connection (08) or a stopping server (57) says nothing.
    """
    if not isinstance(error, asyncpg.PostgresError):
        return True
    return (getattr(error, "sqlstate", None) or "08")[:2] in {"08", "57"}


def withdraw_later(
    pool: asyncpg.Pool[Any],
    name: Name,
    identity: tuple[UUID, int],
    *,
    before: Operation | None = None,
    tried: bool = True,
) -> None:
    """Take a claim back in the background, should it be there.

    Args:
        pool: Database.
        name: Tenant, kind and key.
        identity: Id and fence, which the caller chose for this claim alone and never got: nobody runs it.
        before: The record as it was, to be put back; None: there was none, or it had expired.
        tried: Whether the claim counted as an attempt.
    """
    query, arguments = statement(name, identity, before=before, tried=tried)
    task = asyncio.get_running_loop().create_task(_withdraw(pool, query, arguments, identity[0]))
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)


def statement(
    name: Name, identity: tuple[UUID, int], *, before: Operation | None, tried: bool
) -> tuple[str, tuple[object, ...]]:
    """Return what takes a claim back, as a query and its arguments; see `withdraw_later`."""
    if before is None:
        return _Sql.withdraw, (*name, *identity)
    put_back = (before.wake_at, before.doubt_at, before.expires_at, before.code, before.message)
    return _Sql.give_back, (*name, *identity, before.state.value, *put_back, int(tried))


async def _withdraw(pool: asyncpg.Pool[Any], query: str, arguments: tuple[object, ...], id: UUID) -> None:
    for pause in PAUSES:
        await asyncio.sleep(pause)
        if pool.is_closing():
            return
        try:
            async with asyncio.timeout(TRY_WITHIN):
                if await pool.fetchval(query, *arguments):
                    logger.info("operation %s: its claim, whose answer was lost, is taken back", id)
                    return
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
            logger.warning("operation %s: its lost claim is not taken back yet: %s", id, type(error).__name__)
