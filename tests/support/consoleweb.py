"""The HTTP console in the test's own process, and people and programs that use it."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self

import httpx
from asgi_lifespan import LifespanManager
from fastapi import FastAPI
from milepost import Milepost
from milepost.console.web.app import create_app
from milepost.console.web.settings import ConsoleSettings
from milepost.recovery.permissions import ActorKind, Grant, Role
from milepost.schemas.ids import SystemIds
from milepost.schemas.settings import Settings

BASE = "http://127.0.0.1:8700"
_IDS = SystemIds()


class Client(httpx.AsyncClient):
    """A client that may have been used before its block begins; no socket is open meanwhile."""

    async def __aenter__(self) -> Self:
        return self


@dataclass
class Web:
    """A console that runs.

    Attributes:
        app: The application.
        address: Where its requests seem to come from.
    """

    app: FastAPI
    base: str = BASE

    @property
    def pool(self) -> Any:
        """Its connections to the database."""
        return self.app.state.database.pool

    def client(self, *, address: str = "127.0.0.1", **options: Any) -> Client:
        """Return a client that has not said who it is."""
        transport = httpx.ASGITransport(app=self.app, client=(address, 40000))
        return Client(transport=transport, base_url=self.base, **options)

    async def token(self, name: str, *grants: Grant | Role, kind: ActorKind | None = None) -> str:
        """Make a token; a role alone holds everywhere."""
        secret = f"mpt_{secrets.token_urlsafe(32)}"
        own = [grant if isinstance(grant, Grant) else Grant(grant) for grant in grants]
        agent = any(grant.role is Role.AGENT for grant in own)
        found = kind or (ActorKind.AGENT if agent else ActorKind.PERSON)
        await self.pool.execute(
            "INSERT INTO milepost.access_token (id, name, kind, hash, grants, by, expires_at)"
            " VALUES ($1, $2, $3, $4, $5::jsonb, 'test', milepost.clock() + interval '1 day')",
            *(_IDS.new(), name, found.value, hashlib.sha256(secret.encode()).digest(), written(own)),
        )
        return secret

    async def program(self, name: str, *grants: Grant | Role, **options: Any) -> Client:
        """Return a client that sends a token of that name."""
        token = await self.token(name, *grants)
        return self.client(headers={"Authorization": f"Bearer {token}"}, **options)

    async def person(self, name: str, *grants: Grant | Role, **options: Any) -> Client:
        """Return a client that has signed in as a browser does, and sends the form's proof in its header."""
        client = self.client(**options)
        answer = await client.post("/sign-in", data={"token": await self.token(name, *grants)})
        assert answer.status_code == 303, answer.text
        client.headers["X-CSRF-Token"] = self.csrf(client)
        return client

    def csrf(self, client: Client) -> str:
        """Return the proof that this client's forms hold."""
        parts = self.app.state.parts
        secret = parts.signing.read_session(client.cookies[parts.recogniser.cookie])
        found: str = parts.signing.csrf(f"session:{secret}")
        return found


def written(grants: Sequence[Grant]) -> str:
    """Write grants as the database keeps them."""
    return json.dumps(
        [
            {
                "role": grant.role.value,
                "tenants": None if grant.tenants is None else sorted(grant.tenants),
                "sagas": None if grant.sagas is None else sorted(grant.sagas),
            }
            for grant in grants
        ]
    )


@asynccontextmanager
async def console(
    database_url: str, *, kafka: str | None = None, service: Milepost | None = None, **settings: Any
) -> AsyncIterator[Web]:
    """Run a console while the block lasts; with an application where one is given."""
    core: dict[str, Any] = {"database_url": database_url} | ({} if kafka is None else {"kafka": kafka})
    app = create_app(ConsoleSettings(core=Settings(**core), **settings), service=service)
    async with LifespanManager(app):
        yield Web(app)


def form_proof(page: str) -> str:
    """Return the proof that a page's form holds."""
    found = re.search(r'name="csrf" value="([0-9a-f]+)"', page)
    assert found is not None, page
    return found[1]
