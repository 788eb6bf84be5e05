"""Servers for tests: given by the environment, so that several test runs share them, or started for one run.

MILEPOST_TEST_DATABASE_URL and MILEPOST_TEST_KAFKA name shared ones. A test that ends a server starts its own
``Postgres`` or ``Kafka``.
"""

from __future__ import annotations

import importlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from milepost.devstack.databases import at, drop_database, make_database
from milepost.devstack.kafka import Kafka
from milepost.devstack.ports import run_apart
from milepost.devstack.postgres import Postgres

DATABASE = "MILEPOST_TEST_DATABASE_URL"
KAFKA = "MILEPOST_TEST_KAFKA"


class DatabaseServer(Protocol):
    """A PostgreSQL server that tests may make databases on."""

    def url(self, database: str = "postgres") -> str:
        """Return the URL of one of its databases."""

    def create_database(self, name: str, template: str | None = None) -> str:
        """Create a database and return its URL."""


class MessageServer(Protocol):
    """A Kafka broker that tests may make topics on."""

    @property
    def bootstrap(self) -> str:
        """Host and port."""


@dataclass(frozen=True)
class GivenPostgres:
    """A server somebody else runs.

    Args:
        known: the URL of any of its databases, by a user who may create databases.
    """

    known: str

    def url(self, database: str = "postgres") -> str:
        """Return the URL of one of its databases."""
        return at(self.known, database)

    def create_database(self, name: str, template: str | None = None) -> str:
        """Create a database and return its URL."""
        return make_database(self.known, name, template)


@dataclass(frozen=True)
class GivenKafka:
    """A broker somebody else runs.

    Args:
        bootstrap: host and port.
    """

    bootstrap: str


@contextmanager
def postgres() -> Iterator[DatabaseServer]:
    """Give the shared server, or run one as long as the block lasts."""
    known = os.environ.get(DATABASE)
    if known:
        yield GivenPostgres(known)
        return
    with Postgres() as server:
        yield server


@contextmanager
def kafka() -> Iterator[MessageServer]:
    """Give the shared broker, or run one as long as the block lasts."""
    known = os.environ.get(KAFKA)
    if known:
        yield GivenKafka(known)
        return
    with Kafka() as server:
        yield server


@contextmanager
def fresh_database(server: DatabaseServer, template: str | None = None) -> Iterator[str]:
    """Give the URL of a new database that is dropped afterwards, with whoever is still connected.

    Args:
        server: where.
        template: the database to copy.
    """
    name = f"milepost_test_{secrets.token_hex(6)}"
    url = server.create_database(name, template)
    try:
        yield url
    finally:
        drop_database(server.url(), name)


@contextmanager
def migrated_template(server: DatabaseServer) -> Iterator[str]:
    """Give the name of a database with Milepost's schema in it, to be copied by ``fresh_database``.

    Args:
        server: where.
    """
    with fresh_database(server) as url:
        migrate = importlib.import_module("milepost.streams.migrate").migrate
        run_apart(lambda: migrate(url))
        yield url.rpartition("/")[2]
