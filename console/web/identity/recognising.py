"""Finds who makes a request: a token, a trusted proxy's header, or a session's cookie, in this order."""

from __future__ import annotations

import unicodedata
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from ipaddress import IPv6Address, ip_address
from typing import Any, cast

import asyncpg
from starlette.requests import Request

from ....recovery.permissions import Actor, ActorKind
from ....schemas.errors import ConnectError
from ....streams.database import CANNOT_CONNECT, Database
from ..problems import Problem
from ..rates import Rates
from ..settings import ConsoleSettings
from . import store
from .model import LOCAL, LONGEST_NAME, Caller, Way, grants_of_groups, name_problem
from .signing import Signing, digest_of, same

#: How long a connection may be waited for, in seconds.
WITHIN = 5.0
PROXY_SECRET = "x-milepost-proxy-secret"


@asynccontextmanager
async def connected(database: Database) -> AsyncGenerator[store.Connection]:
    """Borrow a connection for a request.

    Raises:
        Problem: 503, MP716 when there is none.
    """
    try:
        pool = database.pool
        proxy = await pool.acquire(timeout=WITHIN)
    except (*CANNOT_CONNECT, ConnectError, asyncpg.InterfaceError) as error:
        raise unavailable() from error
    try:
        yield cast("asyncpg.Connection[Any]", proxy)
    except (asyncpg.PostgresConnectionError, ConnectionError, asyncpg.AdminShutdownError) as error:
        raise unavailable() from error
    finally:
        await pool.release(proxy)


def unavailable() -> Problem:
    """Make the problem of a database that does not answer."""
    detail = "The database does not answer, so nothing can be shown or done. Try again in a moment."
    return Problem(503, "MP716", detail, headers={"Retry-After": "5"})


class Recogniser:
    """Finds callers.

    Args:
        database: Where sessions and tokens are.
        rates: Counts wrong tokens.
    """

    def __init__(self, settings: ConsoleSettings, signing: Signing, database: Database, rates: Rates) -> None:
        self._settings = settings
        self._signing = signing
        self._database = database
        self._rates = rates

    @property
    def cookie(self) -> str:
        """The session's cookie; by https one that no other host of the domain can set."""
        return "__Host-milepost" if self._settings.secure else "milepost"

    def address(self, request: Request) -> str:
        """Return the address of whoever asks; of a trusted proxy's client, as the proxy tells it."""
        peer = _plain(request.client.host if request.client else "")
        if not self._trusted(peer):
            return peer
        told = ",".join(request.headers.getlist("x-forwarded-for")).split(",")
        for one in reversed([_plain(part.strip()) for part in told if part.strip()]):
            if not self._trusted(one):
                return one
        return peer

    async def caller(self, request: Request, address: str) -> Caller | None:
        """Return who asks; None when nothing says so.

        Raises:
            Problem: 401, MP702 for a token that does not hold; 429; 503.
        """
        bearer = request.headers.getlist("authorization")
        if bearer:
            return await self._by_token(bearer, address)
        if self._settings.proxy_header is not None:
            found = await self._by_proxy(request)
            if found is not None:
                return found
        return await self._by_session(request)

    def session_of(self, request: Request) -> str | None:
        """Return the session's secret that a request's cookie holds, whether the session lasts or not."""
        cookie = request.cookies.get(self.cookie)
        return None if cookie is None else self._signing.read_session(cookie)

    async def _by_token(self, given: list[str], address: str) -> Caller:
        scheme, _, secret = given[0].partition(" ")
        found = None
        if len(given) == 1 and scheme.lower() == "bearer":
            async with connected(self._database) as connection:
                found = await store.find_token(connection, secret.strip())
        if found is None:
            await self._rates.sign_in(address)
            detail = "The token is not known, was revoked, or is over. `milepost tokens list` shows those there are."
            raise Problem(401, "MP702", detail, headers={"WWW-Authenticate": 'Bearer error="invalid_token"'})
        return Caller(found[1], Way.TOKEN)

    async def _by_proxy(self, request: Request) -> Caller | None:
        settings = self._settings
        peer = _plain(request.client.host if request.client else "")
        names = request.headers.getlist(settings.proxy_header or "")
        told = request.headers.getlist(settings.proxy_groups_header) if settings.proxy_groups_header else []
        # What is there twice, one of the two came through from somebody else.
        if not self._trusted(peer) or len(names) != 1 or len(told) > 1:
            return None
        name = _utf8(names[0])
        if name is None or name_problem(name):
            return None
        if settings.proxy_secret is not None:
            proofs = request.headers.getlist(PROXY_SECRET)
            if len(proofs) != 1 or not same(proofs[0], settings.proxy_secret.get_secret_value()):
                return None
        groups = _utf8(told[0]) if told else ""
        own = [group.strip() for group in (groups or "").split(",") if group.strip()]
        async with connected(self._database) as connection:
            access = await store.access_of(connection, name)
        grants = grants_of_groups(own, settings.grants) + access
        actor = Actor(name[:LONGEST_NAME], ActorKind.PERSON, grants)
        proof = self._signing.csrf(f"proxy:{actor.name}")
        return Caller(actor, Way.PROXY, csrf=proof, groups=tuple(own))

    async def _by_session(self, request: Request) -> Caller | None:
        secret = self.session_of(request)
        if secret is None:
            return None
        digest = digest_of(secret)
        async with connected(self._database) as connection:
            found = await store.find_session(connection, digest, self._settings.grants, LOCAL)
        if found is None:
            return None
        actor, way, groups = found
        proof = self._signing.csrf(f"session:{secret}")
        return Caller(actor, way, csrf=proof, session=digest, groups=groups)

    def _trusted(self, address: str) -> bool:
        try:
            parsed = ip_address(address)
        except ValueError:
            return False
        return any(parsed in network for network in self._settings.proxies)


def _utf8(header: str) -> str | None:
    """Read a header as proxies write names, so that a person has one name; None if it is none."""
    try:
        return unicodedata.normalize("NFC", header.encode("latin-1").decode())
    except UnicodeError:
        return None


def _plain(address: str) -> str:
    """Write an address as its own: an IPv4 address that came over IPv6 without the frame around it."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address[:100]
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(parsed)
