"""TLS and SASL against a real broker and a real PostgreSQL: every client of ours gets through, and every wrong setting
is said by its name without its value."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from milepost import publish
from milepost.devstack import postgres as devstack_postgres
from milepost.devstack import postgres_program
from milepost.devstack.postgres import Postgres
from milepost.devstack.postgres_program import run_as
from milepost.outbox.producer import Producer, SendFailed
from milepost.outbox.relay import Relay
from milepost.schemas.errors import ConnectError, StartError
from milepost.schemas.ids import SystemClock
from milepost.schemas.settings import Settings
from milepost.streams.database import Database
from milepost.streams.reader import GroupReader
from milepost.streams.topics import describe, ensure_topics
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from tests.support.inbox import FAST, Effects, Paid, consumer_of, opened, reader_of, running
from tests.support.tls import PASSWORD, USER, Authority, SecureKafka
from tests.support.waiting import until

TEN = timedelta(seconds=10)
NOWHERE = "postgresql://nobody@127.0.0.1:1/nothing"


@pytest.fixture(scope="module")
def authority() -> Iterator[Authority]:
    with tempfile.TemporaryDirectory(prefix="milepost-tls-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        yield Authority(Path(folder))


@pytest.fixture(scope="module")
def broker(authority: Authority) -> Iterator[SecureKafka]:
    with SecureKafka(authority) as broker:
        yield broker


def settings_of(port: int, security: str, **more: Any) -> Settings:
    given: dict[str, Any] = {
        "database_url": NOWHERE,
        "kafka": f"127.0.0.1:{port}",
        "kafka_security": security,
        **{f"kafka_{name}": value for name, value in more.items()},
    }
    return Settings(**given)


def on(database_url: str, settings: Settings) -> Settings:
    given: dict[str, Any] = {**settings.model_dump(), "database_url": database_url}
    return Settings(**given)


def sasl(
    broker: SecureKafka, authority: Authority, mechanism: str = "SCRAM-SHA-512", **more: Any
) -> Settings:
    login = {"user": USER, "password": PASSWORD, "mechanism": mechanism, "ca": authority.ca, **more}
    return settings_of(broker.sasl, "SASL_SSL", **login)


async def round_trip(settings: Settings, topic: str) -> None:
    """Use every kind of client: admin to make the topic, the relay's producer and look-ups, a consumer."""
    await ensure_topics(settings, [topic], partitions=1)
    assert await describe(settings, [topic]) == {topic: 1}
    async with opened(str(settings.database_url), max_size=8) as plain:
        effects = Effects(plain.pool)
        database = Database(settings, max_size=8)
        await database.open()
        reader = reader_of(consumer_of(topic, topic, effects.apply), database, settings)
        try:
            async with running(Relay(database), reader):
                async with database.pool.acquire() as connection, connection.transaction():
                    await publish(connection, Paid(order="over TLS"), topic=topic)
                await until(lambda: effects.runs == ["over TLS"], within=40)
                known = "SELECT count(*) = 1 FROM milepost.topic WHERE name = $1"
                await until(lambda: effects.value(known, topic), within=30, what="the relay's look-up")
        finally:
            await database.close()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_every_client_gets_through_by_sasl_over_tls(
    broker: SecureKafka, authority: Authority, topic_prefix: str, database_url: str, mechanism: str
) -> None:
    await round_trip(on(database_url, sasl(broker, authority, mechanism)), f"{topic_prefix}.events")


async def test_a_client_certificate_with_an_encrypted_key(
    broker: SecureKafka, authority: Authority, topic_prefix: str, database_url: str
) -> None:
    cert, key = authority.issue("client", password="key-secret-3")
    settings = settings_of(
        broker.mutual, "SSL", ca=authority.ca, cert=cert, key=key, key_password="key-secret-3"
    )
    await round_trip(on(database_url, settings), f"{topic_prefix}.events")


async def test_sasl_without_tls(broker: SecureKafka, topic_prefix: str, database_url: str) -> None:
    settings = settings_of(broker.clear, "SASL_PLAINTEXT", user=USER, password=PASSWORD)
    await round_trip(on(database_url, settings), f"{topic_prefix}.events")


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
async def test_a_wrong_password_names_the_setting_and_no_secret(
    broker: SecureKafka, authority: Authority, mechanism: str
) -> None:
    wrong = sasl(broker, authority, mechanism, password="wrong-horse-8")
    with pytest.raises(ConnectError) as refused:
        await describe(wrong, ["t"], within=10)
    assert refused.value.code == "MP502"
    assert "refuses this user or its password" in refused.value.text
    assert "MILEPOST_KAFKA_PASSWORD" in refused.value.text
    with pytest.raises(SendFailed) as failed:
        producer = Producer(wrong, clock=SystemClock(), delivery_timeout=TEN)
        try:
            await producer.open()
        finally:
            await producer.close()
    assert "MILEPOST_KAFKA_PASSWORD" in str(failed.value)
    for shown in (str(refused.value), str(failed.value), repr(wrong), str(wrong)):
        assert "wrong-horse-8" not in shown


async def test_a_reader_with_a_wrong_password_is_red_and_says_why(
    broker: SecureKafka, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = sasl(broker, authority, password="wrong-horse-8")

    async def handle(records: Any) -> None:
        raise AssertionError("nothing can be read")

    reader = GroupReader(name="r", kafka=wrong, group="g", topics=["t"], handle=handle, options=FAST)
    async with running(reader):
        await until(lambda: "MILEPOST_KAFKA_PASSWORD" in reader.health().detail, within=30)
        assert not reader.health().ok
    assert "wrong-horse-8" not in caplog.text + reader.health().detail


async def test_debug_lines_of_the_client_hold_no_password(
    broker: SecureKafka, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("DEBUG", logger="aiokafka"):
        await describe(sasl(broker, authority, "PLAIN"), ["t"], within=10)
    assert "SaslHandShakeRequest" in caplog.text, "the client's debug lines are heard"
    assert PASSWORD not in caplog.text


async def test_what_else_may_be_wrong_is_told_apart(broker: SecureKafka, authority: Authority) -> None:
    with tempfile.TemporaryDirectory() as folder:
        stranger = Authority(Path(folder), "stranger")
        cases = [
            (sasl(broker, stranger), "MILEPOST_KAFKA_CA"),
            (settings_of(broker.sasl, "PLAINTEXT"), "MILEPOST_KAFKA_SECURITY=PLAINTEXT"),
            (settings_of(broker.port, "SSL", ca=authority.ca), "MILEPOST_KAFKA_SECURITY=SSL"),
            (settings_of(broker.mutual, "SSL", ca=authority.ca), "MILEPOST_KAFKA_SECURITY=SSL"),
        ]
        for settings, names in cases:
            with pytest.raises(ConnectError) as refused:
                await describe(settings, ["t"], within=10)
            assert (refused.value.code, names in refused.value.text) == ("MP502", True), refused.value.text


async def test_files_that_cannot_be_used_are_named(broker: SecureKafka, authority: Authority) -> None:
    cert, _ = authority.issue("one", password="secret-1")
    _, other = authority.issue("two")
    rubbish = authority.folder / "rubbish.pem"
    rubbish.write_text("no certificate")
    cases = [
        ({"ca": authority.folder / "gone.pem"}, "MILEPOST_KAFKA_CA"),
        ({"ca": rubbish}, "MILEPOST_KAFKA_CA"),
        ({"ca": authority.ca, "cert": cert, "key": other}, "MILEPOST_KAFKA_KEY"),
        (
            {"ca": authority.ca, "cert": cert, "key": authority.folder / "one.key"},
            "MILEPOST_KAFKA_KEY_PASSWORD",
        ),
    ]
    for files, name in cases:
        with pytest.raises(StartError) as refused:
            await describe(settings_of(broker.mutual, "SSL", **files), ["t"], within=10)
        assert refused.value.code == "MP220" and name in refused.value.text, refused.value.text


@pytest.fixture(scope="module")
def postgres(authority: Authority) -> Iterator[Postgres]:
    program = max(Path("/usr/lib/postgresql").glob("*/bin"), default=None)
    if program is None:
        pytest.skip("needs a PostgreSQL server that is built with TLS, as Debian's and Ubuntu's packages are")
    cert, key = authority.issue("postgres")
    owner = run_as()
    if owner is not None:
        os.chown(key, *owner)
    key.chmod(0o600)
    secure = {"ssl": "on", "ssl_cert_file": str(cert), "ssl_key_file": str(key)}
    with pytest.MonkeyPatch.context() as patch:
        # The wheel's server is built without TLS; the system's packages are built with it.
        patch.setattr(devstack_postgres, "binaries", lambda say: program)
        patch.setattr(postgres_program, "LOCALE", ("--encoding=UTF8", "--locale=C.UTF-8"))
        with Postgres(settings=secure, where="local") as server:
            yield server


def database_of(url: str) -> Settings:
    given: dict[str, Any] = {"database_url": url}
    return Settings(**given)


async def test_postgresql_over_tls_by_pool_and_by_sqlalchemy(
    postgres: Postgres, authority: Authority
) -> None:
    url = f"{postgres.url()}?sslmode=verify-full&sslrootcert={authority.ca}"
    settings = database_of(url)
    query = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
    database = Database(settings, max_size=1)
    await database.open()
    try:
        assert await database.pool.fetchval(query) is True
    finally:
        await database.close()
    engine = create_async_engine(settings.sqlalchemy_url)
    try:
        async with engine.connect() as connection:
            assert (await connection.execute(text(query))).scalar() is True
    finally:
        await engine.dispose()


@pytest.mark.parametrize("how", ["another authority", "no such file", "another host"])
async def test_a_certificate_that_cannot_be_verified_is_mp501(
    postgres: Postgres, authority: Authority, how: str
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        roots = {
            "another authority": Authority(Path(folder), "stranger").ca,
            "no such file": Path(folder) / "gone.pem",
            "another host": authority.ca,
        }
        place = postgres.url().replace("postgres@", "postgres:hush-5@")
        if how == "another host":
            place = place.replace("127.0.0.1", "127.0.0.2")
        settings = database_of(f"{place}?sslmode=verify-full&sslrootcert={roots[how]}")
        with pytest.raises(ConnectError) as refused:
            await Database(settings, max_size=1).open()
        engine = create_async_engine(settings.sqlalchemy_url)
        with pytest.raises((OSError, asyncpg.InterfaceError)):
            async with engine.connect():
                pass
        await engine.dispose()
    assert refused.value.code == "MP501"
    assert "hush-5" not in str(refused.value)
    if how == "another authority":
        assert "certificate is not accepted" in refused.value.text and "sslrootcert" in refused.value.text


def command(*words: str, **variables: str) -> str:
    """Run the command line; returns everything it printed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MILEPOST_")}
    done = subprocess.run(
        [sys.executable, "-m", "milepost.console.main", *words],
        env={**kept, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


def test_no_command_prints_a_secret(broker: SecureKafka, authority: Authority, postgres: Postgres) -> None:
    variables = {
        "MILEPOST_DATABASE_URL": postgres.url().replace("postgres@", "postgres:hush-5@"),
        "MILEPOST_KAFKA": f"127.0.0.1:{broker.sasl}",
        "MILEPOST_KAFKA_SECURITY": "SASL_SSL",
        "MILEPOST_KAFKA_CA": str(authority.ca),
        "MILEPOST_KAFKA_USER": USER,
        "MILEPOST_KAFKA_PASSWORD": PASSWORD,
    }
    shown = command("settings", **variables)
    assert "postgres:**********@" in shown and "kafka_password" in shown
    doctor = command("doctor", **variables)
    assert f"(SASL_SSL, user {USER})" in doctor, doctor
    wrong = command("doctor", **{**variables, "MILEPOST_KAFKA_PASSWORD": "wrong-horse-8"})
    assert "MP502" in wrong and "MILEPOST_KAFKA_PASSWORD" in wrong, wrong
    contradiction = command("settings", **{**variables, "MILEPOST_KAFKA_SECURITY": "PLAINTEXT"})
    assert "MP203" in contradiction and "MILEPOST_KAFKA_PASSWORD" in contradiction
    everything = shown + doctor + wrong + contradiction
    assert not [secret for secret in ("hush-5", PASSWORD, "wrong-horse-8") if secret in everything]
