"""Who asks: nothing behind this is reached without an identity, nor changed by another site's page."""

from __future__ import annotations

from urllib.parse import parse_qs, quote, urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from .guard import HEALTH, SAFE_METHODS, STATIC
from .identity.model import Caller
from .identity.recognising import Recogniser
from .identity.signing import same
from .problems import Problem, answer, wants_page
from .rates import Rates
from .settings import ConsoleSettings

SIGN_IN = "/sign-in"
#: What a form, or else this header, proves that the console made the page that it comes from.
CSRF_FIELD, CSRF_HEADER = "csrf", "x-csrf-token"


class Gate:
    """ASGI middleware that finds the caller of each request, in `request.state.caller`, or answers itself.

    Args:
        app: What is behind it.
        recogniser: Finds who asks.
        rates: Counts requests.
    """

    def __init__(
        self, app: ASGIApp, *, settings: ConsoleSettings, recogniser: Recogniser, rates: Rates
    ) -> None:
        self._app = app
        self._settings = settings
        self._recogniser = recogniser
        self._rates = rates

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request: ASGI."""
        if scope["type"] != "http" or scope["path"].startswith((HEALTH, STATIC)):
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            refused = await self._refused(request)
        except Problem as problem:
            refused = answer(request, problem)
        if refused is not None:
            await refused(scope, receive, send)
            return
        await self._app(scope, receive, send)

    async def _refused(self, request: Request) -> Response | None:
        """Return the answer that ends the request here; None when it may go on."""
        address = self._recogniser.address(request)
        request.state.address = address
        await self._rates.address(address)
        public = is_public(request.url.path)
        if public and (request.url.path != SIGN_IN or request.method not in SAFE_METHODS):
            await self._rates.sign_in(address)
        caller = await self._recogniser.caller(request, address)
        request.state.caller = caller
        self._own_page(request, caller, public=public)
        if public:
            return None
        if caller is None:
            return self._unknown(request)
        await self._rates.identity(caller.actor.name)
        return None

    def _unknown(self, request: Request) -> Response:
        if wants_page(request) and request.method in SAFE_METHODS:
            query = f"?{request.url.query}" if request.url.query else ""
            return RedirectResponse(f"{SIGN_IN}?next={quote(request.url.path + query, safe='')}", 303)
        detail = f"Sign in at {SIGN_IN}, or send a token that `milepost tokens add` made: Authorization: Bearer mpt_…"
        return answer(request, Problem(401, "MP702", detail, headers={"WWW-Authenticate": "Bearer"}))

    def _own_page(self, request: Request, caller: Caller | None, *, public: bool) -> None:
        """Refuse a change that a page of another site has a browser ask for."""
        if request.method in SAFE_METHODS or (caller is not None and caller.csrf is None):
            return
        if not self._own_origin(request):
            raise Problem(
                403, "MP705", "The request comes from another site's page, and changes nothing here."
            )
        if caller is None or public:
            return  # nobody's authority is used
        given = request.headers.get(CSRF_HEADER) or form_field(request, CSRF_FIELD)
        if given is None or not same(given, caller.csrf or ""):
            detail = "The form is not one that this session was given, or was given before you signed in. Load it anew."
            raise Problem(403, "MP704", detail)

    def _own_origin(self, request: Request) -> bool:
        """Whether the browser says that the page is ours; a program that is no browser says nothing."""
        if request.headers.get("sec-fetch-site", "same-origin") not in {"same-origin", "none"}:
            return False
        origin = request.headers.get("origin")
        if origin is None:
            return True
        if self._settings.public_url is not None and origin == self._settings.public_url:
            return True
        return self._settings.loopback and origin == f"http://{request.headers.get('host')}"


def is_public(path: str) -> bool:
    """Whether a path has to be reachable by whoever has no identity yet."""
    return path == SIGN_IN or path.startswith(f"{SIGN_IN}/")


def form_field(request: Request, name: str) -> str | None:
    """Return a field of an urlencoded form whose body has been read."""
    kind = Headers(scope=request.scope).get("content-type", "").partition(";")[0].strip().lower()
    body: bytes | None = getattr(request.state, "body", None)
    if kind != "application/x-www-form-urlencoded" or body is None:
        return None
    try:
        values = parse_qs(body.decode(), max_num_fields=1000).get(name, [])
    except (ValueError, UnicodeError):
        return None
    return values[0] if len(values) == 1 else None


def local_path(text: str | None) -> str:
    """Return a path of this console to go on at; "/" for anything that could lead elsewhere."""
    if (
        not text
        or not text.startswith("/")
        or text.startswith(("//", "/\\"))
        or is_public(text.partition("?")[0])
    ):
        return "/"
    if any(ord(character) < 33 or character == "\\" for character in text):
        return "/"
    parts = urlsplit(text)
    return "/" if parts.scheme or parts.netloc else text
