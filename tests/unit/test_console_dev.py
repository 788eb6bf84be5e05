"""`milepost dev` and `explain`, and roles and extras that are not there."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import pytest
from milepost.console import demo
from milepost.devstack import stack
from milepost.devstack.errors import DevstackError
from milepost.schemas.explain import EXPLANATIONS

from tests.support.console_here import Captured, _no_environment, milepost

__all__ = ["_no_environment", "milepost"]


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
