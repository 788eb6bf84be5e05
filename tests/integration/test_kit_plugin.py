"""The pytest plugin in test runs of its own: settings read at import, reports, nothing left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from milepost.devstack.databases import has_database

from tests.support import servers

APP = """
from milepost import Context, Milepost, Repeat, Saga, Settings
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import create_async_engine

settings = Settings.from_env()
engine = create_async_engine(settings.sqlalchemy_url)


class Key(BaseModel):
    id: str


class Greeting(BaseModel):
    text: str


greet = Saga("greet", version=1, input=Key, key=lambda given: given.id)


@greet.step(repeat=Repeat.SAFE)
async def say(ctx: Context[Key]) -> Greeting:
    return Greeting(text=f"hello {ctx.input.id}")


greet.flow(say)
service = Milepost("greeter", sagas=[greet], engine=engine, settings=settings)
"""

TESTS = """
from pathlib import Path
import pytest
import app
from app import Key, greet, say, service
from milepost import RunState
from milepost.testing import open_kit


@pytest.fixture
async def kit():
    async with open_kit(service) as kit:
        yield kit


async def test_passes(kit):
    assert app.settings.database_url.hosts()[0]["host"] == "milepost.invalid"
    run = await kit.start(greet, Key(id="ann"))
    await kit.until(run, RunState.SUCCEEDED)
    assert (await kit.result(run, say)).text == "hello ann"
    from milepost.testing import postgres
    server = postgres._State.server
    pid = server.ours.record().pid if server.ours else 0
    Path("server.txt").write_text(f"{pid} {server.template}")


async def test_fails_with_an_open_kit(kit):
    run = await kit.start(greet, Key(id="bob"))
    await kit.until(run, RunState.SUCCEEDED)
    assert False


async def test_fails_in_its_own_block():
    async with open_kit(service) as kit:
        await kit.start(greet, Key(id="cyd"))
        assert False


async def test_waits_in_vain(kit):
    kit.fail(say, code="MUTE")
    run = await kit.start(greet, Key(id="dan"))
    await kit.until(run, RunState.SUCCEEDED)


def test_fails_without_a_kit():
    assert False
"""


INI = """[pytest]
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
pythonpath = .
filterwarnings = error
"""


def run(folder: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a process of its own, without our environment's servers."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MILEPOST_")}
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**clean, **environment},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def section(output: str, test: str) -> str:
    """Return the part of a report that is about one test."""
    begun = output.index(f"_ {test} _")
    return output[begun : output.find("\n____", begun + 1)]


def test_an_application_that_reads_its_settings_at_import_is_tested(
    tmp_path: Path, postgres_server: servers.DatabaseServer
) -> None:
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "test_app.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text(INI)
    # Named by its module, because an installed milepost brings it and one on the path does not.
    options = ["-p", "no:milepost", "-p", "milepost.testing.plugin", "-p", "no:cacheprovider", "-q"]
    done = run(tmp_path, "-m", "pytest", *options, ".", MILEPOST_TEST_DATABASE_URL=postgres_server.url())
    output = done.stdout
    assert "4 failed, 1 passed" in output, output + done.stderr
    assert "milepost kit" in section(output, "test_fails_with_an_open_kit")
    assert "greet/bob  SUCCEEDED" in section(output, "test_fails_with_an_open_kit")
    assert "greet/cyd  PENDING" in section(output, "test_fails_in_its_own_block")
    in_vain = section(output, "test_waits_in_vain")
    assert "greet/dan  FAILED (MUTE" in in_vain
    assert "milepost kit" not in in_vain
    assert "milepost kit" not in section(output, "test_fails_without_a_kit")
    pid, template = (tmp_path / "server.txt").read_text().split()
    assert int(pid) == 0
    assert not has_database(postgres_server.url(), template)


SCRIPT = """
import asyncio
from milepost import Milepost, Settings
from milepost.testing import open_kit, postgres


async def main():
    settings = Settings(database_url="postgresql://nobody@milepost.invalid/none")
    async with open_kit(Milepost("script", settings=settings)):
        server = postgres._State.server
        print(server.ours.record().pid if server.ours else 0, server.template)


asyncio.run(main())
"""


def use_kit(folder: Path, **environment: str) -> tuple[int, str]:
    """Run a script that opens a kit; return the process id of the server started for it, and the template's name."""
    (folder / "script.py").write_text(SCRIPT)
    done = run(folder, "-W", "error", "script.py", **environment)
    assert (done.returncode, done.stderr) == (0, "")
    pid, template = done.stdout.split()
    return int(pid), template


@pytest.mark.parametrize("variable", ["MILEPOST_TEST_DATABASE_URL", "MILEPOST_DATABASE_URL"])
def test_a_given_server_is_used_and_left_as_it_was(
    variable: str, tmp_path: Path, postgres_server: servers.DatabaseServer
) -> None:
    pid, template = use_kit(tmp_path, **{variable: postgres_server.url()})
    assert pid == 0
    assert not has_database(postgres_server.url(), template)


def test_where_none_answers_a_server_is_started_and_stopped(tmp_path: Path) -> None:
    pid, _ = use_kit(tmp_path, MILEPOST_DATABASE_URL="postgresql://nobody@127.0.0.1:1/none")
    assert pid > 0
    assert not psutil.pid_exists(pid) or psutil.Process(pid).name() != "postgres"


def test_loading_the_plugin_loads_nothing_heavy() -> None:
    heavy = (
        "{'pydantic', 'sqlalchemy', 'asyncpg', 'aiokafka', 'faststream', 'opentelemetry', 'anyio', 'psutil'}"
    )
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import milepost.testing.plugin, sys; print(sorted({heavy} & sys.modules.keys()))",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == "[]"
