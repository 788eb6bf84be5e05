"""GET /live and GET /ready for a platform's probes, and GET /metrics for Prometheus.

A few fixed answers to fixed requests need no web framework in every worker's image; what is read is bounded in size
and time, nothing of it is used but its first line, and every connection gets one answer.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from ..schemas.errors import StartError
from ..streams.lifecycle import Progressing, Role, Stop

_JSON = "application/json"
_LIVE, _READY = frozenset({"/live", "/health/live"}), frozenset({"/ready", "/health/ready"})
_REQUEST_BYTES, _REQUEST_SECONDS = 8_192, 5.0
#: A look at the database gives up before.
_METRICS_SECONDS = 9.0
_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Service Unavailable",
}


class Probes:
    """What the probes are told.

    Live: no reader has been without progress for longer than `stuck_after`. An event loop that stands still does not
    answer, which a probe takes for no. Ready: every part is well and nobody has asked to stop.
    """

    def __init__(self, parts: Sequence[Role], stop: Stop, stuck_after: timedelta) -> None:
        self._parts = parts
        self._stop = stop
        self._stuck_after = stuck_after.total_seconds()

    def live(self) -> bool:
        """Whether this process should go on."""
        return all(
            part.stuck_for() <= self._stuck_after for part in self._parts if isinstance(part, Progressing)
        )

    def answer(self, line: str) -> tuple[int, bytes]:
        """Return status and body for a request's first line."""
        words = line.split()
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return 400, b"{}"
        path = words[1].partition("?")[0]
        if path not in _LIVE | _READY:
            return 404, b"{}"
        if words[0] not in {"GET", "HEAD"}:
            return 405, b"{}"
        health = {part.name: part.health() for part in self._parts}
        ready = not self._stop.asked and all(found.ok for found in health.values())
        ok = self.live() if path in _LIVE else ready
        parts = {name: {"ok": found.ok, "detail": found.detail} for name, found in health.items()}
        body = {"ok": ok, "stopping": self._stop.asked, "parts": parts}
        return 200 if ok else 503, b"" if words[0] == "HEAD" else json.dumps(body).encode()


@dataclass(frozen=True)
class Exposing:
    """What Prometheus is told.

    Attributes:
        type: Its media type.
        read: Returns it.
    """

    type: str
    read: Callable[[], Awaitable[bytes]]


def health_address(text: str, setting: str = "MILEPOST_HEALTH") -> tuple[str, int]:
    """Read host:port.

    Args:
        setting: What it was set by.

    Raises:
        StartError: MP221 when it is none.
    """
    host, colon, port = text.strip().rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65_535:
        raise StartError(
            "MP221",
            f"{setting}={text}: it is no host:port. Write 127.0.0.1:8080, or 0.0.0.0:8080 in a container.",
        )
    return host.strip("[]"), int(port)


@asynccontextmanager
async def answering(
    address: str | None, probes: Probes, exposing: Exposing | None = None, *, setting: str = "MILEPOST_HEALTH"
) -> AsyncGenerator[None]:
    """Answer probes as long as the block lasts; nothing happens without an address.

    Args:
        address: host:port.
        exposing: What GET /metrics answers; without it there is no such path.
        setting: What the address was set by.

    Raises:
        StartError: MP221 when nobody can listen there.
    """
    if address is None:
        yield
        return
    host, port = health_address(address, setting)
    try:
        server = await asyncio.start_server(
            partial(_serve, probes, exposing), host, port, limit=_REQUEST_BYTES, reuse_address=True
        )
    except OSError as error:
        raise StartError(
            "MP221",
            f"{setting}={address}: nobody can listen there: {error}. Choose another host or port.",
        ) from error
    try:
        yield
    finally:
        server.close()


async def _serve(
    probes: Probes, exposing: Exposing | None, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    kind = _JSON
    try:
        async with asyncio.timeout(_REQUEST_SECONDS):
            line = (await reader.readuntil(b"\r\n\r\n")).partition(b"\r\n")[0]
        words = line.decode("latin-1")
        if exposing is not None and words.startswith(("GET /metrics ", "GET /metrics?")):
            async with asyncio.timeout(_METRICS_SECONDS):
                status, body, kind = 200, await exposing.read(), exposing.type
        else:
            status, body = probes.answer(words)
    except (TimeoutError, ValueError, EOFError, asyncio.LimitOverrunError):
        status, body = 400, b"{}"
    except OSError:
        status, body = 0, b""
    head = (
        f"HTTP/1.1 {status} {_REASONS.get(status, '')}\r\nContent-Type: {kind}\r\n"
        f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(_REQUEST_SECONDS):
            if status:
                writer.write(head.encode("latin-1") + body)
                await writer.drain()
            writer.close()
            await writer.wait_closed()
