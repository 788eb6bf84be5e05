"""Fixtures that more than one folder of tests needs. Servers start when the first test asks for them."""

from __future__ import annotations

import os
import secrets
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from milepost.devstack import given
from milepost.devstack.process import DATA_VARIABLE

from tests.support import servers

pytest_plugins = ["tests.support.collecting", "tests.support.ordering"]

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell that runs the tests in the background has them, and every process they start, ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def own_environment() -> Iterator[None]:
    """Take back what a test, or a command that it ran in this process, has said in the environment."""
    before = dict(os.environ)
    yield
    if os.environ != before:
        os.environ.clear()
        os.environ.update(before)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[servers.DatabaseServer]:
    """A PostgreSQL server for the whole run."""
    with servers.postgres() as server:
        yield server


@pytest.fixture(scope="session")
def kafka_server() -> Iterator[servers.MessageServer]:
    """A Kafka broker for the whole run."""
    with servers.kafka() as server:
        yield server


@pytest.fixture(scope="session")
def database_template(postgres_server: servers.DatabaseServer) -> Iterator[str]:
    """The name of a migrated database that tests copy."""
    with servers.migrated_template(postgres_server) as name:
        yield name


@pytest.fixture
def empty_database_url(postgres_server: servers.DatabaseServer) -> Iterator[str]:
    """A new database without Milepost's schema."""
    with servers.fresh_database(postgres_server) as url:
        yield url


@pytest.fixture
def database_url(postgres_server: servers.DatabaseServer, database_template: str) -> Iterator[str]:
    """A new database with Milepost's schema."""
    with servers.fresh_database(postgres_server, database_template) as url:
        yield url


@pytest.fixture
def kafka(kafka_server: servers.MessageServer) -> str:
    """Host and port of the broker."""
    return kafka_server.bootstrap


@pytest.fixture
def topic_prefix() -> str:
    """Letters and digits that no other test's topics and groups begin with."""
    return f"t{secrets.token_hex(5)}"


@pytest.fixture
def devstack_data(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that takes the data of every server a test starts; no variable points at a running server.

    It is not under pytest's own folder, which is closed to the user that PostgreSQL runs as under root.
    """
    for name in (given.DATABASE, given.KAFKA, given.JAEGER, given.OTLP):
        monkeypatch.delenv(name, raising=False)
    with tempfile.TemporaryDirectory(prefix="milepost-test-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        monkeypatch.setenv(DATA_VARIABLE, folder)
        yield Path(folder)
