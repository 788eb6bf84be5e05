"""Writes of the API are carried out once for each Idempotency-Key, by the middleware that services have too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from starlette.types import ASGIApp, Receive, Scope, Send

from ....consumers.idempotency import IdempotencyMiddleware
from ....schemas.ids import Clock, Ids
from ....schemas.settings import Settings
from ....streams.database import Database
from ..guard import SAFE_METHODS
from ..identity.signing import digest_of

if TYPE_CHECKING:
    from ....consumers.app import Milepost

#: Methods whose requests carry a key.
METHODS = frozenset({"POST"})


@dataclass(frozen=True)
class _Keeper:
    """What the middleware needs of a service."""

    database: Database
    clock: Clock
    ids: Ids
    settings: Settings
    name: str = "console"

    async def _opened(self) -> Database:
        return self.database


class KeyedWrites:
    """ASGI middleware that asks for an Idempotency-Key where the API is written to.

    Args:
        app: What is behind it.
        prefix: Where the API begins.
    """

    def __init__(self, app: ASGIApp, *, database: Database, clock: Clock, ids: Ids, prefix: str) -> None:
        keeper = cast("Milepost", _Keeper(database, clock, ids, database.settings))
        self._app = app
        self._prefix = f"{prefix}/"
        # That there is a key is said by the routes: what takes no write at all is answered so.
        self._keyed = IdempotencyMiddleware(app, service=keeper, tenant=_whose, methods=METHODS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request: ASGI."""
        keyed = (
            scope["type"] == "http"
            and scope["method"] not in SAFE_METHODS
            and scope["path"].startswith(self._prefix)
        )
        await (self._keyed if keyed else self._app)(scope, receive, send)


def _whose(scope: Scope) -> str:
    """Return whose keys they are: two identities never meet, and the name may be longer than a tenant's."""
    caller = scope["state"]["caller"]
    return f"console:{digest_of(f'{caller.actor.kind.value}:{caller.actor.name}').hex()}"
