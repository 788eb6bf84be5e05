"""The command line in this process, on a database with runs, with an application beside."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from milepost.console import main

from tests.support import servers

SQL = Path(__file__).parent / "sql"


TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


Call = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("MILEPOST_APP", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def with_runs(postgres_server: servers.DatabaseServer, database_template: str) -> Iterator[str]:
    """A database with the runs of console_runs.sql, for tests that only look."""
    with servers.fresh_database(postgres_server, database_template) as url:
        execute(url, (SQL / "console_runs.sql").read_text(), "SELECT 1")
        yield url


@pytest.fixture
def milepost(
    request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Call:
    """Run a command line against the test's database; returns status, stdout and stderr."""
    database = "with_runs" if "with_runs" in request.fixturenames else "database_url"
    monkeypatch.setenv("MILEPOST_DATABASE_URL", request.getfixturevalue(database))

    def call(*words: str) -> tuple[int, str, str]:
        status = main.run(words)
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


def execute(url: str, *statements: str) -> Any:
    """Run statements; returns the last one's first row."""

    async def inner() -> Any:
        connection = await asyncpg.connect(url)
        try:
            for statement in statements[:-1]:
                await connection.execute(statement)
            return await connection.fetchrow(statements[-1])
        finally:
            await connection.close()

    return asyncio.run(inner())


def lines(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


APP = """
from datetime import timedelta
from milepost import Event, Milepost, Repeat, Saga, Then, Absent
from pydantic import BaseModel

class Input(BaseModel):
    id: str

class Came(Event, type="x.came", topic="NAME.came", correlate="id"):
    id: str

order = Saga("order", version=1, input=Input, key=lambda i: i.id)

@order.step(repeat=Repeat.NEVER)
async def charge_card(ctx) -> None: ...

delivered = order.wait("delivered", Came, match=lambda v: v.input.id, timeout=timedelta(days=3),
                       on_timeout=Then.RECONCILE)

@delivered.probe
async def ask(ctx):
    return Absent()

@order.tx_step()
async def close_order(ctx, tx) -> None: ...

order.flow(charge_card, delivered, close_order)
service = Milepost("NAME", sagas=[order])
"""


@pytest.fixture
def shop(topic_prefix: str) -> Iterator[str]:
    """Name of an application in the present folder, with topics of its own."""
    module = f"console_{topic_prefix}"
    Path(f"{module}.py").write_text(APP.replace("NAME", topic_prefix))
    yield f"{module}:service"
    sys.modules.pop(module, None)


def codes(out: str) -> dict[str, str]:
    """Return severity by code of a doctor's findings."""
    return {item["code"]: item["severity"] for item in lines(out) if item["code"]}


@pytest.fixture
def near_kafka(kafka: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("MILEPOST_KAFKA", kafka)
    return kafka
