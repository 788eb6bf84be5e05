"""The command line in this process, without servers, and applications for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from milepost.console import main
from milepost.console.options import Globals
from milepost.console.output import Output

Captured = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("MILEPOST_DATABASE_URL", "MILEPOST_APP", "MILEPOST_KAFKA", "MILEPOST_TRACEBACK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def milepost(capsys: pytest.CaptureFixture[str]) -> Captured:
    """Run a command line; returns status, stdout and stderr."""

    def call(*words: str) -> tuple[int, str, str]:
        status = main.run(words)
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


def given(app: str | None = None) -> Globals:
    return Globals(Output(as_json=False), None, app)


APP = """
from datetime import timedelta
from milepost import Event, Milepost, Repeat, Saga, Then
from pydantic import BaseModel

class Input(BaseModel):
    id: str

class Came(Event, type="x.came", topic="x", correlate="id"):
    id: str

saga = Saga("order", version=1, input=Input, key=lambda i: i.id)

@saga.step(repeat=Repeat.NEVER)
async def one(ctx) -> None: ...

came = saga.wait("came", Came, match=lambda v: MATCH, timeout=timedelta(hours=1), on_timeout=Then.PERSON)
saga.flow(one, came)
service = Milepost("shop", sagas=[saga])
"""


OTHER = """
other = Saga("refund", version=1, input=Input, key=lambda i: i.id)

@other.step(repeat=Repeat.NEVER)
async def two(ctx) -> None: ...

other.flow(two)
"""


def app_file(module: str, match: str = "v.input.id") -> str:
    Path(f"{module}.py").write_text(APP.replace("MATCH", match))
    return f"{module}:service"
