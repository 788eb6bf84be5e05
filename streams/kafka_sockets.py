"""Ending a consumer so that nothing of it is left: its tasks, its membership, every connection it has made.

aiokafka 0.14 forgets a connection when its first look at a cluster is cancelled, and when one is being made while the
client closes; a stop in the middle of a join does both. So every connection that the tasks of a session make is noted,
and closed with it.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any

from aiokafka import client as _client

_connect: Any = _client.create_conn


class Sockets:
    """The connections of one session: those that its tasks, and tasks begun by them, have made."""

    def __init__(self) -> None:
        self._made: list[Any] = []
        self._closed = False

    def own(self) -> None:
        """Note what the present task, and those that it begins from now on, connect."""
        _owner.set(self)

    def add(self, connection: Any) -> None:
        """Note a connection; one that comes after `close` is closed at once."""
        # Held here on purpose: one that only a cancelled task knew would be dropped, still open, with that task.
        self._made = [known for known in self._made if known.connected()] + [connection]
        if self._closed:
            connection.close()

    def close(self) -> None:
        """Close all of them, and let none be made any more."""
        self._closed = True
        for connection in self._made:
            connection.close()


_owner: ContextVar[Sockets | None] = ContextVar("milepost_kafka_sockets", default=None)


async def _noted(*place: Any, **options: Any) -> Any:
    """Connect as aiokafka does; clients that belong to no session of ours notice nothing."""
    connection = await _connect(*place, **options)
    owner = _owner.get()
    if owner is not None:
        owner.add(connection)
    return connection


_patched: Any = _client
_patched.create_conn = _noted


async def end_consumer(consumer: Any, leaving: asyncio.Task[None], within: float) -> None:
    """Wait for a consumer to leave its group and disconnect; after `within` seconds end what it left behind.

    Most often it then waits for the join of a rebalance, or for a broker that is away.
    """
    await asyncio.wait({leaving}, timeout=within)
    if leaving.done() and not leaving.cancelled() and leaving.exception() is None:
        return
    coordinator = getattr(consumer, "_coordinator", None)
    for name in ("_coordination_task", "_heartbeat_task", "_commit_refresh_task"):
        await ended(getattr(coordinator, name, None))
    await ended(leaving)
    leave = getattr(coordinator, "_maybe_leave_group", None)
    parts = [getattr(getattr(consumer, part, None), "close", None) for part in ("_fetcher", "_client")]
    for act in (leave, *parts):
        if act is not None:
            step = asyncio.ensure_future(act())
            await asyncio.wait({step}, timeout=1.0)
            await ended(step)


async def ended(task: asyncio.Future[Any] | None) -> None:
    """Cancel a task that still runs, and wait for its end, at most a second."""
    if task is None:
        return
    if not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=1.0)
    if task.done() and not task.cancelled():
        task.exception()
