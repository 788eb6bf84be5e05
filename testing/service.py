"""Putting a service on a throwaway database and a stopped clock, and back."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import PostgresDsn
from sqlalchemy import event
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncEngine

from ..consumers.app import Milepost
from ..consumers.engine import Engine, changes_of
from ..schemas.errors import UsageError
from ..schemas.ids import ManualClock, SystemClock
from ..schemas.settings import Settings
from ..streams.database import Database
from .reporting import PLACEHOLDER_KAFKA
from .store import Sql

#: Connection parameters that say where a database is and as whom; the others are the user's choice and stay.
_WHERE = frozenset(
    {"host", "port", "user", "password", "passfile", "database", "dbname", "dsn", "service", "ssl"}
)


class Steady:
    """Dice that always show the same, so that delays are the same in every test run.

    Args:
        value: In [0, 1).
    """

    def __init__(self, value: float) -> None:
        self._value = value

    def uniform(self) -> float:
        """Return the value."""
        return self._value


@dataclass(frozen=True)
class Opened:
    """A service as a kit uses it.

    Args:
        service: The user's service, for the time being on the throwaway database.
        settings: Its settings there.
        database: Pool and transactions on it.
        clock: The stopped clock; the database has the same time.
    """

    service: Milepost
    settings: Settings
    database: Database
    clock: ManualClock

    @property
    def engine(self) -> Engine:
        """What decides and stores for the service."""
        return Engine(changes_of(self.service), self.database.pool)


@asynccontextmanager
async def on_database(service: Milepost, url: str) -> AsyncGenerator[Opened]:
    """Put a service on a database and a stopped clock as long as the block lasts.

    Everything made from the service's SQLAlchemy engine (session makers, the user's routes) follows, because the
    engine itself is kept and only connects elsewhere.

    Args:
        service: The user's service.
        url: The database, with the kit's set-up in it.

    Raises:
        UsageError: MP356 when a kit is already open on this service, MP357 when its engine cannot be redirected.
    """
    if isinstance(service.clock, ManualClock):
        raise UsageError(
            "MP356",
            f"open_kit(): a kit is already open on service {service.name}. Close it first; a service has one database.",
        )
    with TemporaryDirectory(prefix="milepost-artifacts-") as folder:
        async with _on(service, _settings(service, url, Path(folder))) as opened:
            yield opened


@asynccontextmanager
async def _on(service: Milepost, settings: Settings) -> AsyncGenerator[Opened]:
    clock = ManualClock(SystemClock().now())
    database = Database(settings, engine=service.engine)
    await database.open()
    try:
        await database.pool.execute(Sql.set_clock, clock.current)
        with _swapped(service, settings, database, clock):
            if service.engine is None:
                yield Opened(service, settings, database, clock)
            else:
                async with _redirected(service.engine, settings.sqlalchemy_url):
                    yield Opened(service, settings, database, clock)
    finally:
        await database.close()


def _settings(service: Milepost, url: str, folder: Path) -> Settings:
    here: dict[str, Any] = {"database_url": PostgresDsn(url), "kafka": PLACEHOLDER_KAFKA, "pooler": "none"}
    # A test never writes into the service's own store.
    here["artifacts"] = folder.as_uri() if find_spec("obstore") else None
    given = service._settings
    return Settings(**here) if given is None else given.model_copy(update=here)


@contextmanager
def _swapped(service: Milepost, settings: Settings, database: Database, clock: ManualClock) -> Iterator[None]:
    before = service._settings, service._database, service.clock, service.randomness
    service._settings, service._database, service.clock = settings, database, clock
    service.randomness = Steady(0.5)
    try:
        yield
    finally:
        service._settings, service._database, service.clock, service.randomness = before


@asynccontextmanager
async def _redirected(engine: AsyncEngine, url: str) -> AsyncGenerator[None]:
    """Let an engine connect to another database, with its own options."""
    target = make_url(url)
    sync = engine.sync_engine

    def connect(dialect: Any, _: Any, arguments: Any, parameters: dict[str, Any]) -> Any:
        elsewhere = dialect.create_connect_args(target)[1]
        own = {name: value for name, value in parameters.items() if name not in _WHERE}
        return dialect.connect(*arguments, **{**own, **elsewhere})

    event.listen(sync, "do_connect", connect)
    try:
        # Connections of before belong to another database and, between tests, to a loop that has ended.
        sync.dispose(close=False)
        await _check(engine, target.database or "")
        yield
    finally:
        event.remove(sync, "do_connect", connect)
        await engine.dispose()


async def _check(engine: AsyncEngine, wanted: str) -> None:
    async with engine.connect() as connection:
        found = (await connection.exec_driver_sql(Sql.current_database)).scalar_one()
    if found != wanted:
        raise UsageError(
            "MP357",
            f"open_kit(): the service's SQLAlchemy engine connects to database {found!r} whatever it is told, so a "
            "test could write there. Make the engine from a URL, without creator=, async_creator= or pool=.",
        )
