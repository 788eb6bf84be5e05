"""The command line as a whole: exit statuses, errors, and what it costs to ask for help."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from milepost.console import demo, main
from milepost.console.application import app_name, load_app
from milepost.console.options import Globals
from milepost.console.output import Output
from milepost.console.problems import as_problem, exit_status
from milepost.devstack import stack
from milepost.devstack.errors import DevstackError
from milepost.schemas.errors import ConnectError, DefinitionError, StartError, StateError, UsageError
from milepost.schemas.explain import EXPLANATIONS
from typer.testing import CliRunner

HEAVY = ("faststream", "sqlalchemy", "opentelemetry", "asyncpg", "aiokafka", "pydantic_settings")

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
            "worklist",
            "serve",
            "dev",
            "migrate",
            "check",
            "graph",
            "doctor",
            "settings",
            "retention",
            "explain",
            "demo",
        ),
        *("runs", "artifacts", "dead", "outbox", "signals", "webhooks", "operations", "contracts"),
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


def given(app: str | None = None) -> Globals:
    return Globals(Output(as_json=False), None, app)


def test_the_app_is_named_by_option_then_environment_then_pyproject(monkeypatch: pytest.MonkeyPatch) -> None:
    assert app_name(given()) is None
    Path("pyproject.toml").write_text('[tool.milepost]\napp = "a:from_file"\n')
    assert app_name(given()) == "a:from_file"
    monkeypatch.setenv("MILEPOST_APP", "a:from_environment")
    assert app_name(given()) == "a:from_environment"
    assert app_name(given("a:from_option")) == "a:from_option"


@pytest.mark.parametrize(("text", "code"), [("not toml", "MP603"), ("[tool.milepost]\napp = 3\n", "MP603")])
def test_a_pyproject_that_cannot_be_read_is_said(text: str, code: str) -> None:
    Path("pyproject.toml").write_text(text)
    with pytest.raises(UsageError, match=code):
        app_name(given())


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


def test_check_counts_and_says_that_it_did_not_see_a_database(milepost: Captured) -> None:
    app = app_file("app_good")
    status, out, _ = milepost("check", "--app", app)
    assert status == 0
    assert out.splitlines()[0] == "order v1: 2 steps, 0 undos, 0 probes, no findings"
    assert "MP602" in out
    assert milepost("check", "--app", app, "--strict")[0] == 2
    lines = milepost("check", "--app", app, "--json")[1].splitlines()
    saga, schema, *_ = (json.loads(line) for line in lines)
    assert saga == {"saga": "order", "version": 1, "findings": []}
    assert schema["code"] == "MP602"


def test_check_warns_of_a_variable_that_nothing_reads(
    milepost: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = app_file("app_mistyped")
    for name in ("LEASE", "LOG", "CHAOS_SEED", "TEST_KAFKA", "DEVSTACK_DATA"):
        monkeypatch.setenv(f"MILEPOST_{name}", "30s")
    assert "nothing reads" not in milepost("check", "--app", app)[1]
    monkeypatch.setenv("MILEPOST_LAESE", "30s")
    status, out, _ = milepost("check", "--app", app)
    assert status == 0
    assert "nothing reads MILEPOST_LAESE. Did you mean MILEPOST_LEASE?" in out.splitlines()
    found = [json.loads(line) for line in milepost("check", "--app", app, "--json")[1].splitlines()]
    (warned,) = [item for item in found if item.get("check") == "settings"]
    assert warned["severity"] == "warning"


def test_check_finds_what_a_wait_reads_too_early(milepost: Captured) -> None:
    app = app_file("app_early", "v.result(came).id")
    status, out, _ = milepost("check", "--app", app)
    assert status == 1
    assert "1 finding\n" in out
    assert "MP104" in out
    found = json.loads(milepost("check", "--app", app, "--json")[1].splitlines()[0])["findings"]
    assert [finding["code"] for finding in found] == ["MP104"]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("raise RuntimeError('boom')", "boom"),
        ("import no_such_module", "no_such_module"),
        ("import sys; sys.exit(3)", "ends the process"),
        ("service = 3", "int"),
        ("", "no attribute 'service'"),
    ],
)
def test_an_app_that_cannot_be_loaded_is_one_line(milepost: Captured, text: str, word: str) -> None:
    name = f"app_bad_{abs(hash(text))}"
    Path(f"{name}.py").write_text(text)
    status, _, err = milepost("check", "--app", f"{name}:service")
    assert status == 1
    assert err.startswith("MP609 ")
    assert word in err
    assert "Traceback" not in err


def test_a_wrong_declaration_keeps_its_own_code() -> None:
    Path("app_wrong.py").write_text(
        "from milepost import Event\nclass X(Event, type='UPPER', topic='t'): ..."
    )
    with pytest.raises(DefinitionError, match="MP106"):
        load_app(given("app_wrong:service"))


def test_graph_draws_the_saga_and_the_states(milepost: Captured) -> None:
    app = app_file("app_graph")
    status, out, _ = milepost("graph", "order", "--app", app)
    assert (status, out.splitlines()[0]) == (0, "flowchart TD")
    assert "came" in out
    drawn = json.loads(milepost("graph", "order/1", "--app", app, "--json")[1])
    assert [node["name"] for node in drawn["nodes"]] == ["one", "came"]
    assert milepost("graph", "nope", "--app", app)[0] == 2
    assert milepost("graph", "--app", app)[1] == out
    Path("app_two.py").write_text(
        Path("app_graph.py")
        .read_text()
        .replace("sagas=[saga]", "sagas=[saga, other]")
        .replace("service =", OTHER + "service =")
    )
    status, _, err = milepost("graph", "--app", "app_two:service")
    assert status == 2
    assert "order, refund" in err
    assert "stateDiagram-v2" in milepost("graph", "--format", "states")[1]
    states = json.loads(milepost("graph", "--format", "states", "--json")[1])
    assert {"from": "PENDING", "to": "RUNNING"}.items() <= states["run"][0].items()


def test_an_unknown_role_is_status_2(milepost: Captured) -> None:
    status, _, err = milepost("serve", "--roles", "relay,chef", "--app", "nobody:asks")
    assert status == 2
    assert "chef" in err


def test_dev_prints_only_variables_on_stdout(milepost: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    def up(*, jaeger: bool, say: Callable[[str], None]) -> stack.Stack:
        say("starting")
        if jaeger:
            raise DevstackError("no Jaeger here.", "install Go.")
        return stack.Stack("postgresql://h/d", "h:9092")

    monkeypatch.setattr(stack, "up", up)
    status, out, err = milepost("dev")
    assert status == 0
    assert out.splitlines() == [
        "MILEPOST_DATABASE_URL=postgresql://h/d",
        "MILEPOST_KAFKA=h:9092",
        "MILEPOST_CREATE_TOPICS=true",
    ]
    assert "without Jaeger: no Jaeger here. install Go." in err
    _, out, err = milepost("dev", "--json", "--no-jaeger")
    assert json.loads(out) == {"database_url": "postgresql://h/d", "kafka": "h:9092", "create_topics": "true"}
    assert err == ""


def test_dev_says_what_did_not_start(milepost: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    def up(*, jaeger: bool, say: Callable[[str], None]) -> stack.Stack:
        raise DevstackError("Kafka ended at once.", "see its log.", "    line 1\n    line 2")

    monkeypatch.setattr(stack, "up", up)
    status, out, err = milepost("dev")
    assert (status, out) == (4, "")
    assert err.startswith("MP612 Kafka ended at once.")
    assert "line 2" in err


def test_dev_down_counts(milepost: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack, "down", lambda say: 2)
    assert milepost("dev", "--down", "--json")[1] == '{"stopped":2}\n'
    assert "2 servers stopped" in milepost("dev", "--down")[2]


def test_missing_extras_are_named(milepost: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "find_spec", lambda name: None)
    status, _, err = milepost("demo")
    assert status == 1
    assert err.startswith("MP611 ")
    assert "pip install 'milepost[demo,dev]'" in err
    monkeypatch.setitem(sys.modules, "milepost.devstack.stack", None)
    monkeypatch.delattr("milepost.devstack.stack")
    status, _, err = milepost("dev")
    assert status == 1
    assert "milepost[dev]" in err


def test_explain_without_a_code_lists_all(milepost: Captured) -> None:
    status, out, err = milepost("explain")
    assert (status, err) == (0, "")
    lines = [line.split(maxsplit=1) for line in out.splitlines()]
    assert {code for code, _ in lines} == EXPLANATIONS.keys() - {"EXCEPTION"}
    assert [code for code, _ in lines][:1] == ["MP101"], "the numbers come first"
    assert all(EXPLANATIONS[code].startswith(text) for code, text in lines)
    items = [json.loads(line) for line in milepost("explain", "--json")[1].splitlines()]
    assert [[item["code"], item["text"]] for item in items] == lines


def test_explain_knows_every_form_of_a_code(milepost: Captured) -> None:
    assert milepost("explain", "MP101")[1].startswith("MP101\n")
    assert milepost("explain", "mp101")[1] == milepost("explain", "101")[1]
    item = json.loads(milepost("explain", "MP101", "--json")[1])
    assert item["code"] == "MP101"
    status, _, err = milepost("explain", "MP199")
    assert status == 2
    assert err.startswith("MP610 there is no code 'MP199'.")


def test_explain_knows_the_words_that_the_tool_shows(milepost: Captured) -> None:
    assert milepost("explain", "wait_timeout")[1].startswith("WAIT_TIMEOUT\n")
    assert "HTTP status" in milepost("explain", "HTTP_503")[1]
    status, out, _ = milepost("explain", "KEYERROR")
    assert (status, out.splitlines()[0]) == (0, "KEYERROR")
    assert "in upper case letters" in out
    assert milepost("explain", "CARD_DECLINED")[0] == 0
    status, _, err = milepost("explain", "WAIT_TIMEUOT")
    assert status == 2
    assert "Close to it: WAIT_TIMEOUT." in err
    assert "is a state" in milepost("explain", "MANUAL_REQUIRED")[2]
    assert milepost("explain", "frob")[0] == 2
