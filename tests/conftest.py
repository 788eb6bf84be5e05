"""Fixtures that more than one folder of tests needs. Servers start when the first test asks for them."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from tests.support import servers


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
