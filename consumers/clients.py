"""The clients that steps ask for with `ctx.use`: opened once per process, by the roles that call the outside world."""

from __future__ import annotations

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
                self._open[kind] = await stack.enter_async_context(factory())


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

    async def run(self, stop: Stop) -> None:
        """Keep the clients open until the workers have drained."""
        try:
            async with AsyncExitStack() as stack:
                await self._open(stack, stop)
                await stop.wait()
                async with anyio.create_task_group() as group:
                    for worker in self._workers.values():
                        group.start_soon(worker.drain, stop.remaining)
        finally:
            self._lease.finished()

    async def _open(self, stack: AsyncExitStack, stop: Stop) -> None:
        pause = 0.5
        while not stop.asked:
            try:
                await self._clients.open(stack)
            except Exception as error:
                self._trouble = f"{type(error).__name__}: {error}"
                logger.warning(
                    "a client could not be opened: %s; trying again in %.1f s", self._trouble, pause
                )
                await stop.wait(pause)
                pause = min(LONGEST_PAUSE, pause * 2)
                continue
            self._trouble = None
            for worker in self._workers.values():
                worker.allow()
            return

    def health(self) -> Health:
        """Red while a client cannot be opened."""
        busy = sum(worker.busy for worker in self._workers.values())
        return Health(self._trouble is None, self._trouble or f"{busy} steps running")
