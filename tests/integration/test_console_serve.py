"""Operators only read; `serve` announces itself and ends well."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys

import asyncpg
import pytest
from milepost.console.store import Sql

from tests.support.console_calls import Call, _no_environment, milepost, shop, with_runs

__all__ = ["_no_environment", "milepost", "shop", "with_runs"]


def test_operators_connections_only_read(milepost: Call, database_url: str) -> None:
    from milepost.console.store import reading

    async def write() -> None:
        async with reading(database_url) as store:
            await store.fetch("DELETE FROM milepost.run")

    with pytest.raises(asyncpg.ReadOnlySQLTransactionError):
        asyncio.run(write())
    assert not [name for name in Sql.__annotations__ if "INSERT" in getattr(Sql, name)]


def test_a_reader_of_our_output_may_go_away(with_runs: str) -> None:
    command = f"{sys.executable} -m milepost.console.main runs list --json | head -n 1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        env={**os.environ, "MILEPOST_DATABASE_URL": with_runs},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 1
    assert done.stderr == ""


def test_serve_announces_and_ends_well(database_url: str, kafka: str, shop: str) -> None:
    environment = {**os.environ, "MILEPOST_DATABASE_URL": database_url, "MILEPOST_KAFKA": kafka}
    command = [sys.executable, "-m", "milepost.console.main", "serve", "--json", "--app", shop]
    with subprocess.Popen(
        [*command, "--roles", "waker,upkeep"],
        env={**environment, "MILEPOST_CREATE_TOPICS": "true"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            starting = json.loads(process.stdout.readline())
            assert (starting["event"], starting["roles"]) == ("starting", ["waker", "upkeep"])
            ready = json.loads(process.stdout.readline())
            assert (ready["event"], ready["roles"]) == ("ready", ["waker", "upkeep"])
            process.send_signal(signal.SIGTERM)
            rest, _ = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 0
    assert json.loads(rest.splitlines()[-1])["event"] == "stopped"


def test_serve_on_an_old_schema_is_one_coded_line(empty_database_url: str, milepost: Call, shop: str) -> None:
    status, _, err = milepost("serve", "--app", shop, "--database", empty_database_url)
    assert status == 3
    assert err.startswith("MP")
    assert "milepost migrate" in err
    assert "Traceback" not in err
