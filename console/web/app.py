"""The application: `create_app(settings)`."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from starlette.routing import compile_path
from starlette.staticfiles import StaticFiles

from ...schemas.ids import Clock, SystemClock, SystemIds
from ...streams.database import Database
from . import api, health, pages, problems
from .api.described import describe
from .api.keyed import KeyedWrites
from .gate import Gate
from .guard import Guard
from .identity import entering, provider_routes
from .identity.links import Links
from .identity.oidc import Provider
from .identity.recognising import Recogniser
from .identity.signing import Signing, new_secret
from .lag import Ends
from .parts import Parts
from .rates import Rates
from .rendering import HERE
from .settings import ConsoleSettings

if TYPE_CHECKING:
    from ...consumers.app import Milepost

API = "/api/v1"


def create_app(
    settings: ConsoleSettings, *, clock: Clock | None = None, service: Milepost | None = None
) -> FastAPI:
    """Make the console; its lifespan opens one pool, `app.state.database`.

    Args:
        settings: How it is reached, and who may say who they are.
        clock: Says when links and limits are over; by default the machine's.
        service: The application, for its policies and for what it inspects.
    """
    made = _parts(settings, clock or SystemClock(), service)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        await made.database.open()
        try:
            yield
        finally:
            await app.state.ends.close()
            await made.database.close()

    app = FastAPI(
        title="Milepost",
        version="1",
        description="What runs, what stands in front of a person, and what may be done about it.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url=f"{API}/openapi.json",
    )
    app.state.parts, app.state.database, app.state.ends = made, made.database, Ends(settings.core)
    app.state.methods = _methods()
    problems.install(app)
    for prefix, router in served():
        app.include_router(router, prefix=prefix, include_in_schema=prefix == API)
    app.mount("/static", StaticFiles(directory=HERE / "static"), name="static")
    app.openapi = _described(app)  # type: ignore[method-assign]
    app.add_middleware(KeyedWrites, database=made.database, clock=made.clock, ids=made.ids, prefix=API)
    app.add_middleware(Gate, settings=settings, recogniser=made.recogniser, rates=made.rates)
    app.add_middleware(Guard, settings=settings, ids=made.ids)
    return app


def served() -> Iterator[tuple[str, APIRouter]]:
    """Return every router that is served, with what stands before its paths."""
    for router in (health.router, entering.router, provider_routes.router):
        yield "", router
    for router in api.ROUTERS:
        yield API, router
    for router in pages.ROUTERS:
        yield "", router


def _methods() -> list[tuple[re.Pattern[str], frozenset[str]]]:
    """Return which methods each path takes, for those who ask with another one."""
    found: dict[str, frozenset[str]] = {}
    for prefix, router in served():
        for route in router.routes:
            assert isinstance(route, APIRoute)
            path = prefix + route.path
            found[path] = found.get(path, frozenset()) | frozenset(route.methods or ())
    return [(compile_path(path)[0], methods) for path, methods in found.items()]


def _described(app: FastAPI) -> Callable[[], dict[str, Any]]:
    """Return what gives the API's description, made once."""
    made = app.openapi

    @cache
    def description() -> dict[str, Any]:
        return describe(made())

    return description


def _parts(settings: ConsoleSettings, clock: Clock, service: Milepost | None) -> Parts:
    secret = settings.secret.get_secret_value() if settings.secret is not None else new_secret()
    signing = Signing(secret)
    database = Database(settings.core, max_size=settings.connections)
    rates = Rates(settings, clock)
    return Parts(
        settings=settings,
        database=database,
        clock=clock,
        ids=SystemIds(),
        signing=signing,
        links=Links(clock),
        rates=rates,
        recogniser=Recogniser(settings, signing, database, rates),
        provider=Provider(settings, clock) if settings.oidc_issuer is not None else None,
        service=service,
    )
