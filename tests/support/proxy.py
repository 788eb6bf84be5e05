"""A TCP proxy before PostgreSQL that can lose the answer to a statement which the server has carried out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

#: Messages of the frontend protocol that end a request: Sync, and the simple query.
_REQUEST = {ord("S"), ord("Q")}


@dataclass
class Proxy:
    """Passes bytes on; after `lose(marker)` the first request that carries the marker is answered by silence.

    The request reaches the server and is carried out; then the connection breaks before the answer is seen.
    After `delay(marker)` the answers of that connection are kept back until `pass_on` is set.
    """

    host: str
    port: int
    marker: bytes = b""
    lost: int = 0
    pass_on: asyncio.Event | None = None
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def lose(self, marker: bytes) -> None:
        """Lose the answer to the next request whose bytes hold the marker."""
        self.marker = marker

    def delay(self, marker: bytes) -> asyncio.Event:
        """Keep back the answer to the next request whose bytes hold the marker, until the event is set."""
        self.marker, self.pass_on = marker, asyncio.Event()
        return self.pass_on

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Handle one client."""
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        upstream, downstream = await asyncio.open_connection(self.host, self.port)
        silent = asyncio.Event()
        answers = asyncio.create_task(self._answers(upstream, writer, silent))
        try:
            while data := await reader.read(65536):
                if self.marker and self.marker in data and any(byte in _REQUEST for byte in data):
                    self.marker = b""
                    silent.set()
                downstream.write(data)
                await downstream.drain()
                if silent.is_set() and self.pass_on is None:
                    await answers
                    return
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            answers.cancel()
            for end in (writer, downstream):
                end.close()
                with suppress(ConnectionError, asyncio.CancelledError):
                    await end.wait_closed()
            self.tasks.discard(task)

    async def _answers(
        self, upstream: asyncio.StreamReader, writer: asyncio.StreamWriter, silent: asyncio.Event
    ) -> None:
        while data := await upstream.read(65536):
            if silent.is_set():
                # The server answers only after it has committed.
                self.lost += 1
                if self.pass_on is None:
                    return
                await self.pass_on.wait()
            writer.write(data)
            await writer.drain()
        writer.close()


@asynccontextmanager
async def proxied(url: str) -> AsyncIterator[tuple[Proxy, str]]:
    """Run a proxy before a database; yields it and the URL that goes through it."""
    parts = urlsplit(url)
    proxy = Proxy(parts.hostname or "127.0.0.1", parts.port or 5432)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield proxy, url.replace(f"{parts.hostname}:{parts.port}", f"127.0.0.1:{port}")
    finally:
        server.close()
        for task in list(proxy.tasks):
            task.cancel()
        await asyncio.gather(*proxy.tasks, return_exceptions=True)
