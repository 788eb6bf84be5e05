"""The command line as a whole: exit statuses, errors, and what it costs to ask for help."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from milepost.console import main
from milepost.console.problems import as_problem, exit_status
from milepost.schemas.errors import ConnectError, DefinitionError, StartError, StateError, UsageError
from typer.testing import CliRunner

from tests.support.console_here import Captured, _no_environment, app_file, milepost

__all__ = ["_no_environment", "milepost"]


HEAVY = ("faststream", "sqlalchemy", "opentelemetry", "asyncpg", "aiokafka", "pydantic_settings")


def test_help_loads_no_driver() -> None:
    program = (
        "import sys; from milepost.console import main; status = main.run(['--help'])\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr); sys.exit(status)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.strip()) == (0, "[]")
    assert "migrate" in done.stdout


def test_help_lists_exactly_what_works() -> None:
    listed = CliRunner().invoke(main.app, ["--help"]).output
    assert [
        line.split()[1] for line in listed.split("Commands")[1].splitlines() if re.match("│ [a-z]", line)
    ] == [
        *(
            "replay",
            "reconcile",
            "runbook",
            "worklist",
            "approve",
            "reject",
            "confirm",
            "decline",
            "mcp",
            "serve",
            "dev",
            "migrate",
            "check",
            "graph",
            "doctor",
            "settings",
            "retention",
            "explain",
            "console",
            "demo",
        ),
        *(
            "runs",
            "artifacts",
            "dead",
            "outbox",
            "audit",
            "proposals",
            "bulk",
            "signals",
            "webhooks",
            "operations",
            "contracts",
        ),
        *("tokens", "access"),
    ]


@pytest.mark.parametrize(
    "words",
    [["frob"], ["runs", "shwo"], ["runs", "list", "--state", "NOPE"], ["outbox", "--frob"]],
)
def test_a_wrong_command_line_is_status_2(milepost: Captured, words: list[str]) -> None:
    status, out, err = milepost(*words)
    assert (status, out) == (2, "")
    assert err.startswith("MP601 ")
    assert "`milepost explain MP601`" in err


def test_who_has_to_choose_is_told_both_ways(milepost: Captured) -> None:
    err = milepost("runs", "cancel", "order/o-1", "--reason", "the customer called")[2]
    assert "'--undo' or '--no-undo'" in err


@pytest.mark.parametrize("words", [["--json", "outbox"], ["outbox", "--json"]])
def test_errors_are_json_wherever_the_option_stands(milepost: Captured, words: list[str]) -> None:
    status, out, err = milepost(*words)
    error = json.loads(err)["error"]
    assert (status, out, error["code"]) == (2, "", "MP602")
    assert set(error) == {"code", "text"}


@pytest.mark.parametrize("url", ["mysql://ann:secret@h/d", "nonsense", "postgresql://", "sqlite:///x"])
def test_another_database_is_refused_in_words(milepost: Captured, url: str) -> None:
    for words in (["outbox"], ["migrate"], ["doctor"]):
        status, out, err = milepost(*words, "--database", url)
        assert (status, out) == (2, "")
        assert err.startswith("MP602 --database ")
        assert "needs PostgreSQL" in err
        assert "secret" not in err


def test_a_state_that_does_not_exist_is_told_in_their_own_letters(milepost: Captured) -> None:
    err = milepost("runs", "list", "--state", "FOO")[2]
    assert "MANUAL_REQUIRED" in err
    assert "Value error" not in err


def test_serve_without_a_database_is_status_2(milepost: Captured) -> None:
    status, _, err = milepost("serve", "--app", app_file("app_serve"))
    assert status == 2
    assert err.startswith("MP602 ")


def test_serve_lists_the_roles_that_there_are() -> None:
    from milepost.consumers.serving import ROLES

    assert main.ROLES == ROLES


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("app_clsoe:service", "app_close:service"),
        ("app_close:servise", "app_close:service"),
        ("app_close:saga", "app_close:service"),
    ],
)
def test_close_names_of_an_app_are_suggested(milepost: Captured, name: str, meant: str) -> None:
    app_file("app_close")
    status, _, err = milepost("check", "--app", name)
    assert status == 1
    assert f"Did you mean {meant}?" in err
    sys.modules.pop("app_close", None)


def test_a_close_name_in_a_package_is_suggested_whole(milepost: Captured) -> None:
    Path("hotel").mkdir()
    for name in ("hotel/service.py", "shot.py"):
        Path(name).write_text("")
    status, _, err = milepost("check", "--app", "hotel.servce:service")
    assert status == 1
    assert "Did you mean hotel.service:service?" in err and "shot" not in err
    assert "Did you mean hotel.service:service?" in milepost("check", "--app", "hotle.service:service")[2]


def test_serve_says_which_variables_nothing_reads(
    milepost: Captured, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MILEPOST_LAESE", "3s")
    milepost("serve", "--app", app_file("app_unread"))
    assert "nothing reads MILEPOST_LAESE. Did you mean MILEPOST_LEASE?" in caplog.messages


def test_no_server_is_status_4(milepost: Captured) -> None:
    status, _, err = milepost("outbox", "--database", "postgresql://127.0.0.1:1/nothing")
    assert status == 4
    assert err.startswith("MP501 PostgreSQL at 127.0.0.1:1, database nothing: ")


def test_a_password_is_not_printed(milepost: Captured) -> None:
    for words in (["outbox"], ["runs", "list", "--json"], ["migrate"]):
        _, out, err = milepost(*words, "--database", "postgresql://ann:secret@127.0.0.1:1/nothing")
        assert "secret" not in out + err


def test_the_version(milepost: Captured) -> None:
    assert milepost("--version")[1].startswith("milepost ")
    assert set(json.loads(milepost("--version", "--json")[1])) == {"version"}


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (DefinitionError("MP101", "x"), 1),
        (StartError("MP203", "x"), 1),
        (StartError("MP209", "not migrated"), 3),
        (UsageError("MP602", "x"), 2),
        (StateError("MP604", "x"), 3),
        (ConnectError("MP501", "x"), 4),
    ],
)
def test_each_kind_of_error_has_its_status(error: Any, status: int) -> None:
    assert exit_status(error) == status
    assert as_problem(ExceptionGroup("roles failed", [ValueError("first"), error])) is error


def test_a_defect_gets_a_code_and_shows_its_origin_only_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        raise KeyError("oops")
    except KeyError as error:
        quiet = as_problem(error)
        monkeypatch.setenv("MILEPOST_TRACEBACK", "1")
        loud = as_problem(error)
    assert quiet.code == "MP600"
    assert "Traceback" not in quiet.text
    assert "test_console_main.py" in loud.text
