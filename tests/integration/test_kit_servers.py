"""Where a kit's database comes from: clear words when there is no server, and what killed test runs left is removed."""

from __future__ import annotations

import secrets

import pytest
from milepost.devstack.databases import drop_database, has_database
from milepost.devstack.errors import DevstackError
from milepost.devstack.postgres import Postgres
from milepost.schemas.errors import ConnectError
from milepost.testing import postgres

from tests.support import servers


def test_a_named_server_that_cannot_be_reached_is_named_with_the_way_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MILEPOST_TEST_DATABASE_URL", "postgresql://nobody@127.0.0.1:1/none")
    with pytest.raises(ConnectError, match=r"MP504 open_kit\(\): .*ConnectionRefusedError.*milepost\[dev\]"):
        postgres._found()


def test_a_server_that_does_not_start_is_told_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Postgres) -> None:
        raise DevstackError("PostgreSQL is not installed.", "install it.")

    monkeypatch.delenv("MILEPOST_TEST_DATABASE_URL", raising=False)
    monkeypatch.delenv("MILEPOST_DATABASE_URL", raising=False)
    monkeypatch.setattr(Postgres, "start", refuse)
    with pytest.raises(ConnectError, match=r"MP504 .*PostgreSQL is not installed"):
        postgres._found()


def test_what_a_killed_run_left_is_removed_after_a_day(postgres_server: servers.DatabaseServer) -> None:
    tail = secrets.token_hex(5)
    old = f"{postgres.PREFIX}{postgres._hours() - postgres.LEFT_OVER - 1:x}_{tail}"
    new = f"{postgres.PREFIX}{postgres._hours() - 1:x}_{tail}"
    foreign = f"{postgres.PREFIX}of_somebody_else_{tail}"
    for name in (old, new, foreign):
        postgres_server.create_database(name)
    try:
        postgres._remove_left_over(postgres_server.url())
        kept = [name for name in (old, new, foreign) if has_database(postgres_server.url(), name)]
        assert kept == [new, foreign]
    finally:
        for name in (old, new, foreign):
            drop_database(postgres_server.url(), name)
