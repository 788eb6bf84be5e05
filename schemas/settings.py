"""Settings of a process, from the environment (prefix MILEPOST_)."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import quote

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PostgresDsn,
    SecretStr,
    ValidationError,
    model_validator,
)
from pydantic_settings import BaseSettings, SettingsConfigDict

from .artifacts import place_problem
from .errors import StartError
from .masking import mask_url
from .queues import check_numbers

#: A shorter lease would run out between two renewals.
SHORTEST_LEASE = timedelta(milliseconds=500)
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


def _lasting(value: timedelta) -> timedelta:
    if value < SHORTEST_LEASE:
        raise ValueError(
            "a lease has to be 500ms or longer: it is renewed at a third of it, over the database; 30s suits most"
        )
    return value


Duration = Annotated[timedelta, BeforeValidator(parse_duration), AfterValidator(_positive)]
Lease = Annotated[Duration, AfterValidator(_lasting)]
KafkaSecurity = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
KafkaMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]

#: Largest body of an event in bytes, unless MILEPOST_MAX_EVENT_BYTES says otherwise. Kafka's default limit of a record
#: batch is 1,048,588 bytes; the rest is for key, headers and framing.
MAX_EVENT_BYTES = 1_000_000


class Settings(BaseSettings):
    """Effective settings; durations are written "30s", "5m" or in ISO 8601.

    Attributes:
        database_url: PostgreSQL, as postgresql://user:password@host:port/database.
        kafka: Bootstrap servers, host:port, comma-separated.
        kafka_security: How to talk to Kafka: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.
        kafka_ca: File with the certificates (PEM) that Kafka's is checked against; the system's when not set.
        kafka_cert: File with this client's certificate (PEM), where the broker asks for one.
        kafka_key: File with its private key, when that is not in the same file.
        kafka_key_password: Password of that key.
        kafka_mechanism: SASL mechanism: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.
        kafka_user: SASL user.
        kafka_password: Its password.
        lease: How long a worker or relay owns its work without renewing; renewed at a third, and a
            worker's every two seconds at least. 500 ms or longer.
        grace: How long a stopping process may finish what it has begun; keep it under the platform's kill.
        step_concurrency: Steps at once per process and queue.
        queue_concurrency: Other numbers for single queues, as "reports=4,default=200".
        queue_reserved: How many of a queue's slots only runs of priority HIGH may have, as "default=20"; where not set,
            a tenth, and at least one, in queues that such runs use.
        relay_idle_poll: Longest pause of an idle relay.
        hold_topics: Topics, comma-separated or * for all, whose keys wait behind a row that the relay cannot send;
            elsewhere later rows of the key go on.
        nudge: First wait before a step that nobody claimed is announced again; doubles.
        keep_outbox: How long sent rows stay in the outbox.
        keep_inbox: How long applied event ids are remembered.
        keep_signals: How long a signal is kept after it was matched or has expired.
        keep_letters: How long a dead letter is kept after it was resolved or ignored; open ones stay.
        keep_webhooks: How long a webhook is kept after it was processed or ignored; its event id is known so long.
        keep_replays: How long the progress of a replay is kept.
        keep_participants: How long a participant remembers what it did for a command; longer than any requester may ask
            again or undo.
        keep_runs: How long a run's details are kept after its end; its key and outcome stay.
        keep_artifacts: How long an artifact is kept after it was made, object and row; one of a live run stays.
        keep_requests: How long an answered request of a person is kept; at least as long as its run.
        keep_history: How long history and reconciliations are kept, history by the month; at least as long as its run.
        keep_audit: How long the audit is kept, by the month; at least as long as the runs that it tells of.
        redrive_within: Longest time in which a dead letter is redriven; the inbox remembers that much longer.
        dead_letter_topic: Where copies of dead letters go, for other tools; {service} and {consumer} stand for names,
            and nothing for no copies.
        dead_letter_alarm: Age of an open dead letter at which `milepost doctor` calls it an error.
        create_topics: Create missing event topics too; internal topics are always created.
        pooler: "transaction" behind a transaction-mode pooler: no prepared statements.
        max_event_bytes: Largest body of an event, in bytes.
        max_result_bytes: Largest result of a step, in bytes of JSON.
        artifacts: Where steps write artifacts: a folder, file:///var/lib/shop, or a bucket, s3://bucket/prefix.
        artifacts_endpoint: URL of a store that speaks S3 and is not Amazon's.
        artifacts_region: Its region. This and the keys are taken from AWS_* variables when not set here.
        artifacts_access_key: Its access key.
        artifacts_secret_key: The secret to it.
        reconcile_every: How often the role `reconciler` looks for what has drifted; one process of a service at a time.
        health: host:port at which `serve` answers GET /live and GET /ready; off when not set.
        metrics: host:port at which `serve` answers GET /metrics, for Prometheus, and GET /health/live and
            /health/ready; off when not set. It may be the same as `health`.
        stuck_after: `serve` ends when one of its readers has been red for so long though both servers answer.
        park_after: A run whose definition no live process has had for so long is shown to a person; it goes on by
            itself when a process has it again.
        rolled_back: Definitions, comma-separated ("order/2"), that this process need not find anywhere although runs of
            them are open, as after a rollback.
    """

    # The values would be in the text of a validation error, and passwords are among them.
    model_config = SettingsConfigDict(
        env_prefix="MILEPOST_", extra="ignore", frozen=True, hide_input_in_errors=True
    )

    database_url: PostgresDsn
    kafka: str = "localhost:9092"
    kafka_security: KafkaSecurity = "PLAINTEXT"
    kafka_ca: Path | None = None
    kafka_cert: Path | None = None
    kafka_key: Path | None = None
    kafka_key_password: SecretStr | None = None
    kafka_mechanism: KafkaMechanism = "SCRAM-SHA-512"
    kafka_user: str | None = None
    kafka_password: SecretStr | None = None
    lease: Lease = timedelta(seconds=30)
    grace: Duration = timedelta(seconds=25)
    step_concurrency: int = Field(default=100, gt=0)
    queue_concurrency: Annotated[str, AfterValidator(check_numbers)] = ""
    queue_reserved: Annotated[str, AfterValidator(check_numbers)] = ""
    relay_idle_poll: Duration = timedelta(milliseconds=500)
    hold_topics: str = ""
    nudge: Duration = timedelta(seconds=10)
    keep_outbox: Duration = timedelta(days=7)
    keep_inbox: Duration = timedelta(days=30)
    keep_signals: Duration = timedelta(days=30)
    keep_letters: Duration = timedelta(days=90)
    keep_webhooks: Duration = timedelta(days=90)
    keep_replays: Duration = timedelta(days=7)
    keep_participants: Duration = timedelta(days=90)
    keep_runs: Duration = timedelta(days=90)
    keep_artifacts: Duration = timedelta(days=90)
    keep_requests: Duration = timedelta(days=90)
    keep_history: Duration = timedelta(days=90)
    keep_audit: Duration = timedelta(days=400)
    redrive_within: Duration = timedelta(days=14)
    dead_letter_topic: str = "{service}.dead"
    dead_letter_alarm: Duration = timedelta(hours=1)
    create_topics: bool = False
    pooler: Literal["none", "transaction"] = "none"
    max_event_bytes: int = Field(default=MAX_EVENT_BYTES, gt=0)
    max_result_bytes: int = 65_536
    artifacts: str | None = None
    artifacts_endpoint: str | None = None
    artifacts_region: str | None = None
    artifacts_access_key: str | None = None
    artifacts_secret_key: SecretStr | None = None
    reconcile_every: Duration = timedelta(seconds=5)
    health: str | None = None
    metrics: str | None = None
    stuck_after: Duration = timedelta(minutes=15)
    park_after: Duration = timedelta(hours=1)
    rolled_back: str = ""

    @property
    def dsn(self) -> str:
        """The database as asyncpg takes it."""
        return "postgresql://" + self._rest()

    @property
    def sqlalchemy_url(self) -> str:
        """The same database for SQLAlchemy: postgresql+asyncpg.

        Parameters such as sslmode and sslrootcert go along in asyncpg's own `dsn`: SQLAlchemy hands parameters to
        the driver as keywords, which takes neither of those two as one.
        """
        place, question, parameters = self._rest().partition("?")
        user, at, hosts = place.partition("/")[0].rpartition("@")
        several = hosts if "," in hosts else ""  # SQLAlchemy reads one host only
        if not question and not several:
            return f"postgresql+asyncpg://{place}"
        place = f"{user}{at}/{place.partition('/')[2]}" if several else place
        return f"postgresql+asyncpg://{place}?dsn={quote(f'postgresql://{several}?{parameters}', safe='')}"

    def _rest(self) -> str:
        return str(self.database_url).partition("://")[2]

    @model_validator(mode="after")
    def _kafka_is_whole(self) -> Self:
        """Refuse Kafka settings that contradict each other: a password that nobody is sent, say."""
        sasl, tls = self.kafka_security.startswith("SASL"), self.kafka_security.endswith("SSL")
        login = {"KAFKA_USER": self.kafka_user, "KAFKA_PASSWORD": self.kafka_password}
        files = {"KAFKA_CA": self.kafka_ca, "KAFKA_CERT": self.kafka_cert, "KAFKA_KEY": self.kafka_key}
        where = f"MILEPOST_KAFKA_SECURITY={self.kafka_security}"
        if sasl and (missing := [name for name, value in login.items() if not value]):
            raise ValueError(f"{where} needs {_and(missing)}")
        if not sasl and (unused := [name for name, value in login.items() if value]):
            raise ValueError(f"{_and(unused)} is set and {where} sends none; say SASL_SSL")
        if not tls and (unused := [name for name, value in files.items() if value]):
            raise ValueError(f"{_and(unused)} is set and {where} is not encrypted; say SSL or SASL_SSL")
        if self.kafka_key is not None and self.kafka_cert is None:
            raise ValueError("MILEPOST_KAFKA_KEY needs MILEPOST_KAFKA_CERT")
        return self

    @model_validator(mode="after")
    def _artifacts_are_somewhere(self) -> Self:
        if self.artifacts is not None and (problem := place_problem(self.artifacts)):
            raise ValueError(f"MILEPOST_ARTIFACTS {problem}")
        return self

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        """Show the fields with the database's password masked; pydantic's own would print it."""
        for name, value in super().__repr_args__():
            yield name, mask_url(str(value)) if name == "database_url" else value

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
            raise StartError(
                "MP203",
                f"settings: {what_is_wrong(error)}. Set them in the environment; `milepost dev` prints working lines.",
            ) from None


def what_is_wrong(error: ValidationError, prefix: str = "MILEPOST_") -> str:
    """Return which variables are wrong and why, never what they hold."""
    return "; ".join(
        f"{prefix}{'_'.join(str(part) for part in item['loc']).upper()}: {_in_words(item['msg'])}"
        if item["loc"]
        else item["msg"].removeprefix("Value error, ")
        for item in error.errors(include_input=False)
    )


def _in_words(message: str) -> str:
    """Write pydantic's message so that it goes on after a colon; what it quotes stays as it has to be written."""
    said = message.removeprefix("Value error, ")
    return said[:1].lower() + said[1:]


def max_event_bytes() -> int:
    """Return the largest body of an event, for `publish`, which has no settings at hand.

    Raises:
        StartError: MP203 when MILEPOST_MAX_EVENT_BYTES is no positive number.
    """
    text = os.environ.get("MILEPOST_MAX_EVENT_BYTES")
    if text is None:
        return MAX_EVENT_BYTES
    if not text.strip().isdigit() or int(text) < 1:
        raise StartError("MP203", "settings: MILEPOST_MAX_EVENT_BYTES: it is no positive number of bytes.")
    return int(text)


def _and(names: Iterable[str]) -> str:
    return " and ".join(f"MILEPOST_{name}" for name in names)
