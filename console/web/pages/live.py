"""Telling pages that something changed, by server-sent events; what changed, they fetch anew.

However many pages are open, each question is asked of the database once a second at most.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import APIRouter, Query, Request
from sse_starlette.event import ServerSentEvent
from sse_starlette.sse import EventSourceResponse

from ....consumers.engine import DATABASE_ERRORS
from ....recovery.permissions import Act
from ....schemas.errors import ConnectError
from ...views import live
from ..identity import Seen, Signed
from ..identity.recognising import connected
from ..parts import Parts, parts
from ..permitting import needs
from ..problems import Problem

router = APIRouter(dependencies=[needs(Act.READ_RUNS)])

#: Seconds between two looks, and until a page has to ask again, so that who has signed out is told nothing more.
LOOK, LASTS = 1.0, 300.0


@dataclass
class Marks:
    """What was last seen of each thing that pages follow."""

    at: dict[str, tuple[float, str]] = field(default_factory=dict)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def now(self, given: Parts, about: str) -> str:
        """Return the mark of something, at most a look old."""
        async with self.lock:
            clock = asyncio.get_running_loop().time()
            seen = self.at.get(about)
            if seen is not None and clock - seen[0] < LOOK * 0.9:
                return seen[1]
            async with connected(given.database) as connection:
                found = await live.mark(connection, about)
            self.at = {name: one for name, one in self.at.items() if clock - one[0] < LASTS}
            self.at[about] = (clock, found)
            return found


@router.get("/live")
async def follow(
    request: Request,
    actor: Signed,
    scope: Seen,
    about: Annotated[str, Query(max_length=100)],
) -> EventSourceResponse:
    """Send `changed` whenever something about that has changed."""
    given = parts(request)
    async with connected(given.database) as connection:
        if not live.known(about) or not await live.may_follow(connection, scope, about):
            raise Problem(404, "MP731", "There is nothing of that name to follow.")
    marks: Marks = request.app.state.__dict__.setdefault("marks", Marks())
    return EventSourceResponse(_events(request, given, marks, about), ping=15)


async def _events(request: Request, given: Parts, marks: Marks, about: str) -> AsyncIterator[ServerSentEvent]:
    loop = asyncio.get_running_loop()
    until, last = loop.time() + LASTS, None
    yield ServerSentEvent(comment="following", retry=3000)
    while loop.time() < until and not await request.is_disconnected():
        try:
            now = await marks.now(given, about)
        except (*DATABASE_ERRORS, ConnectError, Problem):
            now = last or ""
        if last is not None and now != last:
            yield ServerSentEvent(event="changed", data=about)
        last = now
        await asyncio.sleep(LOOK)
