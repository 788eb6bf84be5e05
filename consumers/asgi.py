"""The little of HTTP that Milepost speaks itself: bounded bodies, short answers, problem+json (RFC 9457)."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from http import HTTPStatus
from typing import Any, TypeAlias

Message: TypeAlias = MutableMapping[str, Any]
Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
ASGIApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

#: What a client is asked to wait when the store is away, in seconds.
RETRY_AFTER = 5


class TooLarge(Exception):
    """The body is longer than is taken; it was not read to its end."""


class Gone(Exception):
    """The client has gone before its body was complete."""


async def read_body(scope: Scope, receive: Receive, most: int) -> bytes:
    """Read a request's body.

    Args:
        most: Longest body that is taken, in bytes.

    Raises:
        TooLarge: It is, or says that it is, longer; at most a chunk too much was read.
        Gone: The client went away.
    """
    for name, value in scope["headers"]:
        if name.lower() == b"content-length" and value.isdigit() and (len(value) > 18 or int(value) > most):
            raise TooLarge
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Gone
        part = message.get("body", b"")
        size += len(part)
        if size > most:
            raise TooLarge
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


async def answer(send: Send, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> None:
    """Send a whole response; one that has no content has no length either (RFC 9110, 8.6)."""
    length = [] if status in {204, 304} else [(b"content-length", str(len(body)).encode())]
    given = [*length, *headers]
    await send({"type": "http.response.start", "status": status, "headers": given})
    await send({"type": "http.response.body", "body": body})


async def answer_json(send: Send, status: int, item: Mapping[str, object]) -> None:
    """Send an object as JSON."""
    body = json.dumps(item, separators=(",", ":")).encode()
    await answer(send, status, [(b"content-type", b"application/json")], body)


async def problem(
    send: Send,
    status: int,
    code: str,
    detail: str,
    *,
    kind: str = "about:blank",
    instance: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> None:
    """Send a problem (RFC 9457); `code` is an extension member.

    Args:
        kind: URI of the kind of problem; "about:blank" says no more than the status.
        instance: URI of this very problem.
        headers: Such as Retry-After or Link.
    """
    item = {
        "type": kind,
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "code": code,
    }
    if instance is not None:
        item["instance"] = instance
    more = [
        (name.lower().encode(), value.encode("latin-1", "replace")) for name, value in (headers or {}).items()
    ]
    body = json.dumps(item, separators=(",", ":")).encode()
    await answer(send, status, [(b"content-type", b"application/problem+json"), *more], body)


async def lifespan(receive: Receive, send: Send) -> None:
    """Say yes to a server's start and stop, for an app that needs neither."""
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        elif message["type"] == "lifespan.shutdown":
            await send({"type": "lifespan.shutdown.complete"})
            return
