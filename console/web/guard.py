"""The outermost layer: what every answer carries, which hosts are answered, how long a body may be, what failed."""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...consumers.asgi import Gone, TooLarge, read_body
from ...schemas.ids import Ids
from .problems import Problem, answer, unexpected
from .settings import ConsoleSettings

HEALTH = "/health/"
STATIC = "/static/"
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})

#: Nothing inline, nothing from elsewhere, and no frame around it.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; manifest-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
_YEAR = 31_536_000


class Guard:
    """ASGI middleware around everything else.

    Args:
        app: What is inside.
        ids: For the reference of what failed.
    """

    def __init__(self, app: ASGIApp, *, settings: ConsoleSettings, ids: Ids) -> None:
        self._app = app
        self._settings = settings
        self._ids = ids
        self._headers = dict(HEADERS)
        if settings.secure:
            self._headers["strict-transport-security"] = f"max-age={_YEAR}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request: ASGI. Nothing but HTTP is answered."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        begun = False

        async def guarded(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                self._add_headers(scope, message)
            await send(message)

        try:
            await self._answer(scope, receive, guarded)
        except Gone:
            return
        except Exception as error:
            if begun:
                raise
            response = unexpected(Request(scope), error, str(self._ids.new()))
            await response(scope, receive, guarded)

    def _add_headers(self, scope: Scope, message: Message) -> None:
        headers = MutableHeaders(scope=message)
        for name, value in self._headers.items():
            headers[name] = value
        if not scope["path"].startswith(STATIC):
            headers.setdefault("cache-control", "no-store")

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("state", {})
        problem = self._wrong_host(scope)
        if problem is None and scope["method"] not in SAFE_METHODS:
            try:
                body = await read_body(scope, receive, self._settings.max_body)
                receive = replayed(body, receive)
                scope["state"]["body"] = body
            except TooLarge:
                detail = f"The body is longer than the {self._settings.max_body} bytes that are taken."
                problem = Problem(413, "MP707", detail, headers={"Connection": "close"})
        if problem is not None:
            await answer(Request(scope), problem)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _wrong_host(self, scope: Scope) -> Problem | None:
        """Refuse a name that is not ours: a page elsewhere could have its own name point here."""
        if scope["path"].startswith(HEALTH):
            return None
        named = Headers(scope=scope).getlist("host")
        if len(named) == 1 and host_of(named[0]) in self._settings.hosts:
            return None
        return Problem(421, "MP705", "The console does not answer to that name. Open it at its own address.")


def host_of(text: str) -> str | None:
    """Return the name in a Host header; None when it cannot be read."""
    try:
        return urlsplit(f"//{text}").hostname
    except ValueError:
        return None


def replayed(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives a body that was read already, and then what comes."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
