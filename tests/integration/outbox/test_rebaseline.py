"""A database restored from a dump: the relay stops, and goes on from there once it is told that it may."""

from __future__ import annotations

import asyncio
import json
import secrets
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from milepost.console import main
from milepost.devstack.databases import drop_database
from milepost.devstack.errors import DevstackError
from milepost.devstack.machine import silent
from milepost.devstack.postgres import Postgres
from milepost.devstack.postgres_program import binaries
from milepost.outbox.log import outbox_state
from milepost.outbox.rebaseline import rebaseline
from milepost.outbox.upkeep import Upkeep
from milepost.schemas.errors import StateError
from milepost.streams.database import Database
from milepost.streams.lifecycle import Stop
from milepost.streams.migrate import migrate

from tests.support import servers
from tests.support.outbox import (
    CLOCK,
    IDS,
    Noted,
    arrived,
    connected,
    make_topics,
    publish_noted,
    relaying,
    settings,
    until_sent,
)
from tests.support.waiting import until


@pytest.fixture(scope="module")
def programs() -> Path:
    """The folder with pg_dump and pg_restore."""
    try:
        return binaries(silent)
    except DevstackError as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def other_server() -> Iterator[Postgres]:
    """A cluster of its own, which has given out few transaction numbers."""
    with Postgres() as server:
        yield server


@asynccontextmanager
async def migrated(server: servers.DatabaseServer) -> AsyncIterator[str]:
    """Give a migrated database on a server."""
    name = f"milepost_test_{secrets.token_hex(6)}"
    url = server.create_database(name)
    try:
        await migrate(url)
        yield url
    finally:
        await asyncio.to_thread(drop_database, server.url(), name)


@asynccontextmanager
async def copied(
    programs: Path, url: str, server: servers.DatabaseServer, folder: Path
) -> AsyncIterator[str]:
    """Dump a database and restore it on another server."""
    dump, name = folder / "dump", f"milepost_test_{secrets.token_hex(6)}"
    copy = server.create_database(name)
    plain = ["--no-owner", "--no-privileges"]

    def run(*command: str) -> None:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert not done.returncode, done.stderr

    try:
        await asyncio.to_thread(run, str(programs / "pg_dump"), "-Fc", *plain, "-f", str(dump), url)
        await asyncio.to_thread(run, str(programs / "pg_restore"), *plain, "-d", copy, str(dump))
        yield copy
    finally:
        await asyncio.to_thread(drop_database, server.url(), name)


async def notes(connection: asyncpg.Connection[Any], topic: str, start: int, stop: int) -> list[UUID]:
    """Publish numbers, each in a transaction of its own, over three keys."""
    ids: list[UUID] = []
    for n in range(start, stop):
        ids += await publish_noted(connection, topic, [Noted(key=f"k{n % 3}", n=n)])
    return ids


@pytest.mark.parametrize("older", ["numbers ahead of the copy", "numbers behind the copy"])
async def test_a_restored_dump_goes_on_in_order(
    postgres_server: servers.DatabaseServer,
    other_server: Postgres,
    programs: Path,
    kafka: str,
    topic_prefix: str,
    tmp_path: Path,
    older: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pair = (postgres_server, other_server)
    source, target = pair if older == "numbers ahead of the copy" else pair[::-1]
    topic = f"{topic_prefix}.restored"
    await make_topics(kafka, topic)
    async with migrated(source) as url:
        async with connected(url) as (connection,):
            async with relaying(url, kafka):
                ids = await notes(connection, topic, 0, 30)
                await until_sent(connection)
            ids += await notes(connection, topic, 30, 40)
        async with copied(programs, url, target, tmp_path) as copy, connected(copy) as (connection,):
            ids += await notes(connection, topic, 40, 45)
            async with connection.transaction():
                ids += await notes(connection, topic, 45, 48)  # each in a savepoint
            async with relaying(copy, kafka) as running:
                await until(lambda: "MP411" in running.relay.health().detail, what="the copy to be refused")
                assert "rebaseline" in running.relay.health().detail
            assert len((await arrived(kafka, topic)).all()) == 30

            monkeypatch.setenv("MILEPOST_DATABASE_URL", copy)

            async def call(*words: str) -> tuple[int, str, str]:
                status = await asyncio.to_thread(main.run, ["outbox", *words])
                return status, *capsys.readouterr()

            assert "restored copy" in (await call())[1]
            status, out, _ = await call("rebaseline", "--reason", "moved")
            assert (status, "18 events would go out next, 30 were sent" in out) == (0, True)
            async with relaying(copy, kafka) as running:  # still refused, and fenced when it is mended
                await until(
                    lambda: "MP411" in running.relay.health().detail, what="a preview to change nothing"
                )
                found = json.loads((await call("--json", "rebaseline", "--confirm", "--reason", "moved"))[1])
                assert (found["done"], found["unsent"], found["sent"]) == (True, 18, 30)
                ids += await notes(connection, topic, 48, 60)
                await until_sent(connection, within=40)
                await until(lambda: running.relay.health().ok, what="health to turn green")
            await Upkeep(Database(settings(copy))).tidy(Stop(CLOCK, timedelta(seconds=5)))
            status, _, err = await call("rebaseline", "--confirm", "--reason", "twice")
            assert (status, "MP423" in err) == (3, True)
            audit = await connection.fetchrow("SELECT * FROM milepost.audit WHERE act = 'outbox.rebaseline'")
            assert audit is not None and audit["reason"] == "moved"
            assert json.loads(audit["evidence"]) == {"unsent": 18, "sent": 30}
    found_records = await arrived(kafka, topic)
    assert sorted(found_records.ids()) == sorted(ids), "each once"
    assert found_records.order() == {f"k{n}".encode(): ids[n::3] for n in range(3)}


async def test_the_database_that_relayed_last_needs_none(
    database_url: str, kafka: str, topic_prefix: str
) -> None:
    topic = f"{topic_prefix}.home"
    await make_topics(kafka, topic)
    async with connected(database_url) as (connection,):
        with pytest.raises(StateError, match="MP423"):
            await rebaseline(connection, by="ann", reason="nobody relayed", ids=IDS)
        async with relaying(database_url, kafka):
            await publish_noted(connection, topic, [Noted(key="k")])
            await until_sent(connection)
        before = await connection.fetch("SELECT * FROM milepost.outbox_lease")
        with pytest.raises(StateError, match="MP423"):
            await rebaseline(connection, by="ann", reason="at home", ids=IDS)
        assert await connection.fetch("SELECT * FROM milepost.outbox_lease") == before
        assert (await outbox_state(connection)).lag == 0


async def test_a_user_who_may_not_is_told(database_url: str) -> None:
    name = f"milepost_test_{secrets.token_hex(6)}"
    async with connected(database_url) as (connection,):
        await connection.execute(f"CREATE ROLE {name} LOGIN IN ROLE milepost_runtime")
        try:
            await connection.execute(
                "INSERT INTO milepost.outbox_position VALUES ('outbox', 3, 1, '9:9:', '9:9:', 0, 4711)"
            )
            await connection.execute(f"SET ROLE {name}")
            with pytest.raises(StateError, match="MP424"):
                await rebaseline(connection, by="ann", reason="as runtime", ids=IDS)
            await connection.execute("RESET ROLE")
            assert await connection.fetchval("SELECT count(*) FROM milepost.outbox_position") == 1
        finally:
            await connection.execute(f"DROP ROLE {name}")
