"""Which application is meant, and what `check` and `graph` say of it without servers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from milepost.console.application import app_name, load_app
from milepost.schemas.errors import DefinitionError, UsageError

from tests.support.console_here import OTHER, Captured, _no_environment, app_file, given, milepost

__all__ = ["_no_environment", "milepost"]


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
