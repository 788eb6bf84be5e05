"""`milepost console`: the HTTP console, until it is asked to stop."""

from __future__ import annotations

import importlib.util
import signal
import socket
import webbrowser
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..schemas.errors import StartError
from .application import optional_app
from .options import Globals
from .output import Output
from .serve import log_to_stderr
from .store import changing

if TYPE_CHECKING:
    from .web.settings import ConsoleSettings

_NEEDED = (
    "authlib",
    "fastapi",
    "itsdangerous",
    "jinja2",
    "limits",
    "markdown_it",
    "python_multipart",
    "uvicorn",
)


async def run_console(
    given: Globals, *, host: str | None, port: int | None, show: bool, roles: Sequence[str] = ()
) -> None:
    """Serve the console.

    Args:
        host: Address to listen on; None for MILEPOST_CONSOLE_HOST, else loopback.
        port: Its port; None for MILEPOST_CONSOLE_PORT, else 8700.
        show: Open a browser that is signed in.
        roles: Those that whoever follows the printed link claims, for approvals; none for MILEPOST_ROLES.

    Raises:
        UsageError: MP644 for a role that is none.
        StartError: MP715 without the extra, MP203 for wrong settings, MP700 and MP701 when others could reach it
            and nothing says who they are, MP714 when the address is taken.
        ConnectError: MP501 without a database.
        StateError: MP607, MP608, MP620 when it is not one to be used.
    """
    _need_extra()
    from ..schemas.settings import Settings
    from .web.app import create_app
    from .web.settings import ConsoleSettings

    given.database_url()
    given.to_environment()
    claimed = given.roles(roles)
    settings = ConsoleSettings.from_env(Settings.from_env(), host=host, port=port)
    tokens = await _usable_tokens(given.database_url())
    if not settings.loopback:
        _check_open(settings, tokens)
    log_to_stderr()
    listening = _listen(settings)
    app = create_app(settings, service=optional_app(given))
    address = f"http://{_written(settings.host)}:{listening.getsockname()[1]}"
    link = None
    if settings.loopback and (show or not settings.has_identity):
        link = f"{address}/sign-in/link?token={app.state.parts.links.make(given.by(), claimed)}"
    await _serve(given.out, app, listening, address=settings.public_url or address, link=link, show=show)


def _need_extra() -> None:
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise StartError(
            "MP715",
            f"console: {', '.join(missing)} is not installed. Install the extra: pip install 'milepost[console]'.",
        )


async def _usable_tokens(database_url: str) -> int:
    """Count the tokens that would be taken, which also shows that the database can be used.

    Raises:
        ConnectError: MP501 when it cannot be reached.
        StateError: MP607, MP608, MP620 when it is not migrated, or does not let this user.
    """
    from .web.identity.store import usable_tokens

    async with changing(database_url) as connection:
        return await usable_tokens(connection)


def _check_open(settings: ConsoleSettings, tokens: int) -> None:
    """Refuse an address that others reach while anybody could be anybody there."""
    if not settings.has_identity and not tokens:
        raise StartError(
            "MP700",
            f"console: others can reach {settings.host}, and nothing says who they are. Set "
            "MILEPOST_CONSOLE_OIDC_ISSUER and _OIDC_CLIENT_ID, or MILEPOST_CONSOLE_PROXY_HEADER and _PROXY_FROM, "
            "or make a token: `milepost tokens add NAME --role viewer`. Or leave --host out: then only this "
            "machine reaches it.",
        )
    missing = [
        name
        for name, value in (("PUBLIC_URL", settings.public_url), ("SECRET", settings.secret))
        if not value
    ]
    if missing or not settings.secure:
        said = (
            " and ".join(f"MILEPOST_CONSOLE_{name}" for name in missing)
            or "an https:// MILEPOST_CONSOLE_PUBLIC_URL"
        )
        raise StartError(
            "MP701",
            f"console: on {settings.host} it needs {said}: the https:// address that browsers open, in front of "
            "which something encrypts, and 32 characters or more that sign its cookies.",
        )


def _listen(settings: ConsoleSettings) -> socket.socket:
    try:
        family, kind, number, _, place = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, number)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(place)
        listening.listen(128)
    except OSError as error:
        raise StartError(
            "MP714",
            f"console: cannot listen on {settings.host}, port {settings.port}: {error.strerror or error}. Say another "
            "--port; 0 takes any that is free.",
        ) from error
    return listening


def _written(host: str) -> str:
    return f"[{host}]" if ":" in host else host


async def _serve(
    out: Output, app: Any, listening: socket.socket, *, address: str, link: str | None, show: bool
) -> None:
    """Run uvicorn, and say where the console is once it answers."""
    import uvicorn

    class Server(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            """End in order at SIGTERM and Ctrl-C; uvicorn's own way raises the signal anew afterwards."""
            # As uvicorn installs them: streams of events look there for the server that is about to end.
            before = {
                number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)
            }
            try:
                yield
            finally:
                for number, handler in before.items():
                    signal.signal(number, handler)

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.should_exit:
                return
            out.item(event="ready", url=address, sign_in=link)
            out.say(f"console at {address}" + (f"\nsign in, once: {link}" if link else ""))
            if show:
                webbrowser.open(link or address)

    config = uvicorn.Config(
        app,
        log_config=None,
        log_level="critical",  # what fails is logged by the console itself, under a reference
        access_log=False,  # a link that signs in would be in it
        proxy_headers=False,  # whom to trust is said in our settings
        server_header=False,
        lifespan="on",
        ws="none",
        timeout_graceful_shutdown=5,
    )
    await Server(config).serve(sockets=[listening])
