"""Settings of a process, from the environment (prefix MILEPOST_)."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, PostgresDsn, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from .errors import StartError

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_duration(value: Any) -> Any:
    """Read "30s", "5m", "250ms", "24h" or "7d" as a timedelta; other values pass through to pydantic (ISO 8601)."""
    if not isinstance(value, str):
        return value
    text = value.strip().lower()
    for unit in ("ms", "s", "m", "h", "d"):
        number = text.removesuffix(unit)
        if number != text and number.replace(".", "", 1).isdigit():
            return timedelta(seconds=float(number) * _UNITS[unit])
    if text.startswith("p"):
        return value
    raise ValueError(f'{value!r} is no duration; write "30s", "5m", "24h", "7d" or ISO 8601 such as PT30S')


def _positive(value: timedelta) -> timedelta:
    if value <= timedelta(0):
        raise ValueError("a duration must be longer than zero")
    return value


Duration = Annotated[timedelta, BeforeValidator(parse_duration), AfterValidator(_positive)]


class Settings(BaseSettings):
    """Effective settings; durations are written "30s", "5m" or in ISO 8601.

    Attributes:
        database_url: PostgreSQL, as postgresql://user:password@host:port/database.
        kafka: Bootstrap servers, host:port, comma-separated.
        lease: How long a worker or relay owns its work without renewing; renewed at a third.
        grace: How long a stopping process may finish what it has begun; keep it under the platform's kill.
        step_concurrency: Steps at once per process and queue.
        relay_idle_poll: Longest pause of an idle relay.
        nudge: First wait before a step that nobody claimed is announced again; doubles.
        keep_outbox: How long sent rows stay in the outbox.
        keep_inbox: How long applied event ids are remembered.
        create_topics: Create missing event topics too; internal topics are always created.
        pooler: "transaction" behind a transaction-mode pooler: no prepared statements.
        max_result_bytes: Largest result of a step, in bytes of JSON.
    """

    model_config = SettingsConfigDict(env_prefix="MILEPOST_", extra="ignore", frozen=True)

    database_url: PostgresDsn
    kafka: str = "localhost:9092"
    lease: Duration = timedelta(seconds=30)
    grace: Duration = timedelta(seconds=25)
    step_concurrency: int = 100
    relay_idle_poll: Duration = timedelta(milliseconds=500)
    nudge: Duration = timedelta(seconds=10)
    keep_outbox: Duration = timedelta(days=7)
    keep_inbox: Duration = timedelta(days=30)
    create_topics: bool = False
    pooler: Literal["none", "transaction"] = "none"
    max_result_bytes: int = 65_536

    @property
    def dsn(self) -> str:
        """The database as asyncpg takes it."""
        return "postgresql://" + self._rest()

    @property
    def sqlalchemy_url(self) -> str:
        """The same database for SQLAlchemy: postgresql+asyncpg."""
        return "postgresql+asyncpg://" + self._rest()

    def _rest(self) -> str:
        return str(self.database_url).partition("://")[2]

    @classmethod
    def from_env(cls) -> Self:
        """Read the settings from MILEPOST_* variables.

        Raises:
            StartError: MP203 when a variable is missing or wrong, naming each.
        """
        try:
            nothing: dict[str, Any] = {}
            return cls(**nothing)
        except ValidationError as error:
            found = "; ".join(
                f"MILEPOST_{'_'.join(str(part) for part in item['loc']).upper()}: {item['msg'].lower()}"
                for item in error.errors()
            )
            raise StartError(
                "MP203",
                f"settings: {found}. Set them in the environment; `milepost dev` prints working lines.",
            ) from None
