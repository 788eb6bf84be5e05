"""The clients that steps ask for with `ctx.use`: opened once per process, by the roles that call the outside world."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

import anyio

from ..schemas.errors import UsageError
from ..streams.lifecycle import Health, Stop
from .lease import Lease
from .worker import Worker

logger = logging.getLogger("milepost")

#: Longest pause between tries to open a client, in seconds.
LONGEST_PAUSE = 10.0
#: Longest wait for clients to close, in seconds.
CLOSE_WITHIN = 5.0


class ClientFailed(Exception):
    """A provided client could not be opened."""


class Clients:
    """What was provided, and what of it is open.

    Args:
        factories: As given to `Milepost.provide`.
    """

    def __init__(self, factories: Mapping[type[Any], Callable[[], AbstractAsyncContextManager[Any]]]) -> None:
        self._factories = factories
        self._open: dict[type[Any], Any] = {}

    def get(self, kind: type[Any]) -> Any:
        """Return the open client.

        Raises:
            UsageError: MP330 when none was provided.
        """
        if kind not in self._open:
            raise UsageError(
                "MP330",
                f"ctx.use({kind.__name__}): nothing is provided for it. Call service.provide({kind.__name__}, factory) "
                "where the service is made.",
            )
        return self._open[kind]

    def put(self, kind: type[Any], client: Any) -> None:
        """Use this client for a class; the test kit does."""
        self._open[kind] = client

    async def open(self, stack: AsyncExitStack) -> None:
        """Enter every factory that is not open yet; the stack closes them."""
        for kind, factory in self._factories.items():
            if kind not in self._open:
                try:
                    self._open[kind] = await stack.enter_async_context(factory())
                except Exception as error:
                    raise ClientFailed(f"{kind.__name__}: {type(error).__name__}: {error}") from error


class Crew:
    """The role that opens clients, lets workers claim, and at the end waits for what they have begun.

    Args:
        clients: To be opened before anything is claimed.
        workers: One per queue.
        lease: Released when the last of them has finished.
    """

    name = "crew"

    def __init__(self, clients: Clients, workers: Mapping[str, Worker], lease: Lease) -> None:
        self._clients = clients
        self._workers = workers
        self._lease = lease
        self._trouble: str | None = "opening clients"
        self._close = asyncio.Event()

    async def run(self, stop: Stop) -> None:
        """Keep the clients open until the workers have drained."""
        # A task of their own enters and leaves the clients: some may only be left where they were entered.
        owner = asyncio.create_task(self._own(stop))
        try:
            await stop.wait()
            async with anyio.create_task_group() as group:
                for worker in self._workers.values():
                    group.start_soon(worker.drain, stop.remaining)
        finally:
            self._lease.finished()
            self._close.set()
            if self._trouble is not None:
                owner.cancel()
            await _ended(owner)

    def ready(self) -> bool:
        """Whether the clients are open."""
        return self._trouble is None and not self._close.is_set()

    async def _own(self, stop: Stop) -> None:
        async with AsyncExitStack() as stack:
            if await self._opened(stack, stop):
                for worker in self._workers.values():
                    worker.allow()
                await self._close.wait()

    async def _opened(self, stack: AsyncExitStack, stop: Stop) -> bool:
        pause = 0.5
        while not stop.asked:
            try:
                await self._clients.open(stack)
            except Exception as error:
                self._trouble = f"client {error}"
                logger.warning("could not open %s; again in %.1f s", self._trouble, pause, exc_info=error)
                await stop.wait(pause)
                pause = min(LONGEST_PAUSE, pause * 2)
                continue
            self._trouble = None
            return True
        return False

    def health(self) -> Health:
        """Red while a client cannot be opened."""
        busy = sum(worker.busy for worker in self._workers.values())
        return Health(self._trouble is None, self._trouble or f"{busy} steps running")


async def _ended(owner: asyncio.Task[None]) -> None:
    """Wait until the clients are closed; one that hangs does not keep the process from stopping."""
    await asyncio.wait({owner}, timeout=CLOSE_WITHIN)
    if not owner.done():
        owner.cancel()
        await asyncio.wait({owner}, timeout=1.0)
    if owner.done() and not owner.cancelled() and (error := owner.exception()) is not None:
        logger.warning("a client could not be closed: %s: %s", type(error).__name__, error)
