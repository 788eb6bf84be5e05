"""Who asks: dependencies for pages and API.

`Signed`, `Connected` and `Seen` are for handlers: `async def show(actor: Signed, connection: Connected)`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import asyncpg
from fastapi import Depends, Request

from ....recovery.permissions import Actor, Scope, scope_of
from ..parts import parts
from ..problems import Problem
from .recognising import connected

if TYPE_CHECKING:
    Connection: TypeAlias = asyncpg.Connection[Any]
else:  # FastAPI looks at annotations when it runs, where asyncpg's class takes no parameter
    Connection = asyncpg.Connection


async def signed_in(request: Request) -> Actor:
    """Return who asks. The gate has refused already whoever has no identity; this holds it once more."""
    caller = getattr(request.state, "caller", None)
    if caller is None:
        raise Problem(401, "MP702", "Sign in first.")
    actor: Actor = caller.actor
    return actor


async def connection(request: Request) -> AsyncIterator[Connection]:
    """Borrow a connection for as long as the request is handled; not for streams, which would keep it."""
    async with connected(parts(request).database) as borrowed:
        yield borrowed


async def csrf(request: Request) -> None:
    """Hold once more that a change without an identity goes no further; the gate has compared the form's proof."""
    await signed_in(request)


async def scope(request: Request) -> Scope:
    """Return what whoever asks may see."""
    return scope_of(await signed_in(request))


Signed = Annotated[Actor, Depends(signed_in)]
Connected = Annotated[Connection, Depends(connection)]
Seen = Annotated[Scope, Depends(scope)]
