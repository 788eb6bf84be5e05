"""Opening a kit."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

from ..consumers.app import Milepost
from ..devstack.ports import run_apart
from ..schemas.transaction import Transaction
from .kit import Kit
from .postgres import throwaway_database
from .reporting import NotReached, keep, reporting
from .service import on_database
from .timeline import timelines


@asynccontextmanager
async def open_kit(
    service: Milepost, *, prepare: Callable[[Transaction], Awaitable[None]] | None = None
) -> AsyncGenerator[Kit]:
    """Run a service on a throwaway PostgreSQL, a recording Kafka and a stopped clock as long as the block lasts.

    The database is on the server of MILEPOST_TEST_DATABASE_URL; else on that of MILEPOST_DATABASE_URL when it answers;
    else on one that is started once per test run and stopped at its end. Meanwhile the service's SQLAlchemy engine, and
    with it every session maker made from it, connects there too.

    Args:
        service: The user's service. Its clients are not opened; give the kit fakes with `Kit.provide`.
        prepare: Makes the user's own tables, in a transaction that commits before the kit is there. With an engine:
            `await tx.session.run_sync(lambda s: Base.metadata.create_all(s.connection()))`; else by tx.connection.

    Yields:
        The kit.

    Raises:
        ConnectError: MP504 when no PostgreSQL is to be had.
        UsageError: MP356 when a kit is already open on this service, MP357 when its engine cannot be redirected.
    """
    async with throwaway_database() as url, on_database(service, url) as opened:
        if prepare is not None:
            async with service.transaction() as tx:
                await prepare(tx)
        kit = Kit(opened)
        await kit.begin()
        with reporting(lambda: run_apart(lambda: timelines(url))):
            try:
                yield kit
            except NotReached:
                raise
            except Exception:
                keep(await timelines(url))
                raise
            finally:
                await kit.end()
