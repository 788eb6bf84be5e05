"""The command line against a real database: what is listed and shown of runs."""

from __future__ import annotations

import json

import pytest

from tests.support.console_calls import (
    TRACE,
    Call,
    _no_environment,
    lines,
    milepost,
    near_kafka,
    shop,
    with_runs,
)

__all__ = ["_no_environment", "milepost", "near_kafka", "shop", "with_runs"]


def test_migrate_says_what_it_did(empty_database_url: str, milepost: Call) -> None:
    option = ("--database", empty_database_url)
    status, out, _ = milepost("migrate", "--dry-run", *option)
    assert status == 0
    assert "nothing was changed" in out
    assert milepost("runs", "list", *option)[0] == 3
    first = json.loads(milepost("migrate", "--json", *option)[1])
    assert (first["from"], first["to"]) == (0, len(first["files"]))
    status, out, _ = milepost("migrate", *option)
    assert (status, out) == (0, f"schema {first['to']}, nothing to do\n")
    assert milepost("migrate", "--to", "999", *option)[0] == 1


def test_a_database_without_schema_is_refused_with_the_way_out(
    empty_database_url: str, milepost: Call, near_kafka: str
) -> None:
    for words in (["runs", "list"], ["runs", "show", "order/o-1"], ["outbox"]):
        status, out, err = milepost(*words, "--database", empty_database_url)
        assert (status, out) == (3, "")
        assert err.startswith("MP607 ")
        assert "milepost migrate" in err
    status, out, _ = milepost("doctor", "--database", empty_database_url)
    assert status == 3
    assert "MP607" in out


def test_an_older_schema_is_refused_with_the_way_out(
    empty_database_url: str, milepost: Call, near_kafka: str
) -> None:
    option = ["--database", empty_database_url]
    assert milepost("migrate", "--to", "1", *option)[0] == 0
    status, out, err = milepost("worklist", *option)
    assert (status, out) == (3, "")
    assert err.startswith("MP620 the database has schema version 1 (")
    assert "milepost migrate" in err


def test_empty_lists_say_so(milepost: Call) -> None:
    assert milepost("runs", "list") == (0, "no runs yet\n", "")
    assert milepost("runs", "list", "--saga", "nope") == (
        0,
        "no runs of a saga nope; there are no runs yet\n",
        "",
    )
    assert milepost("runs", "list", "--json") == (0, "", "")


@pytest.mark.parametrize(
    ("filters", "keys"),
    [
        ([], ["r-1", "r-1", "o-5", "o-4", "o-3", "o-2", "o-1"]),
        (["--limit", "2"], ["r-1", "r-1"]),
        (["--state", "waiting", "--state", "RUNNING"], ["o-4", "o-1"]),
        (["--saga", "refund"], ["r-1", "r-1"]),
        (["--key", "o-3"], ["o-3"]),
        (["--correlation", "c-1"], ["o-4", "o-1"]),
        (["--since", "30m"], ["r-1", "r-1", "o-4", "o-1"]),
        (["--since", "2020-01-01T00:00:00Z", "--saga", "order"], ["o-5", "o-4", "o-3", "o-2", "o-1"]),
        (["--since", "2120-01-01"], []),
    ],
)
def test_runs_are_listed_youngest_first(
    milepost: Call, with_runs: str, filters: list[str], keys: list[str]
) -> None:
    status, out, _ = milepost("runs", "list", "--json", *filters)
    assert status == 0
    assert [line["run"].split("/")[1] for line in lines(out)] == keys


def test_a_list_for_people(milepost: Call, with_runs: str) -> None:
    _, out, err = milepost("runs", "list", "--saga", "order")
    rows = [line.split() for line in out.splitlines()]
    assert rows[0] == ["run", "state", "at", "since", "code"]
    assert rows[-1][:3] == ["order/o-1", "WAITING", "delivered"]
    assert [*rows[3][:4], rows[3][-1]] == [
        *("order/o-3", "MANUAL_REQUIRED", "charge_card", "4h", "OUTCOME_UNKNOWN"),
    ]
    assert "\x1b" not in out
    assert all(line == line.rstrip() for line in out.splitlines())
    assert err == ""
    assert "--limit" in milepost("runs", "list", "--limit", "2")[2]


def test_a_saga_without_runs_is_told_those_that_have_some(milepost: Call, with_runs: str) -> None:
    assert milepost("runs", "list", "--saga", "odrer")[1] == (
        "no runs of a saga odrer; there are runs of: order, refund\n"
    )
    assert milepost("runs", "list", "--saga", "refund", "--key", "x")[1] == "no such runs\n"


def test_a_wrong_since_is_status_2(milepost: Call) -> None:
    status, _, err = milepost("runs", "list", "--since", "yesterday")
    assert status == 2
    assert err.startswith("MP601 --since 'yesterday'")


def test_show_says_where_a_run_stands(milepost: Call, with_runs: str) -> None:
    status, out, err = milepost("runs", "show", "order/o-1")
    assert (status, err) == (0, "")
    shown = out.splitlines()
    assert shown[0] == f"order/o-1  WAITING  delivered until 2126-12-02 18:13Z   trace {TRACE[:8]}…"
    rows = [line.split() for line in shown[1:]]
    assert rows[0] == ["step", "state", "tries", "probed", "since"]
    assert [row[:-1] for row in rows[1:]] == [
        ["reserve_stock", "SUCCEEDED", "1"],
        ["charge_card", "SUCCEEDED", "1", "yes"],
        ["ship", "SUCCEEDED", "2"],
        ["delivered", "WAITING"],
    ]
    assert [int(row[-1].removesuffix("m")) - int(rows[4][-1].removesuffix("m")) for row in rows[1:]] == [
        7,
        4,
        0,
        0,
    ]


def test_show_tells_doubt_undo_worker_and_reasons(milepost: Call, with_runs: str) -> None:
    assert "FAILED (outcome in doubt)" in milepost("runs", "show", "order/o-5")[1]
    undone = milepost("runs", "show", "order/o-2")[1]
    assert undone.startswith("order/o-2  COMPENSATED  after 1h, because of CARRIER_CLOSED\n")
    assert "undoes reserve_stock" in undone
    assert [line.split()[-1] for line in undone.splitlines() if "  ship " in line] == ["CARRIER_CLOSED"]
    assert "\n      the carrier has closed its books until January\n" in undone
    held = milepost("runs", "show", "order/o-4")[1]
    assert "host-1:4711" in held
    assert "last try: TIMEOUT" in held
    person = milepost("runs", "show", "order/o-3")[1]
    assert "no reply\N{REPLACEMENT CHARACTER}[31m within 30 s" in person


def test_the_timeline(milepost: Call, with_runs: str) -> None:
    out = milepost("runs", "show", "order/o-1", "--history")[1]
    timeline = [line.split() for line in out.split("\n\n")[1].splitlines()]
    assert timeline[0] == ["UTC", "later", "event", "step", "try", "data"]
    events = {row[2] if row[1].startswith("+") else row[1]: row for row in timeline if len(row) > 1}
    assert events["step.unknown"][1] == "+30s"
    assert events["step.unknown"][-1] == "code=TIMEOUT"
    assert "\n      no answer from http://bank/charges within 2 s\n" in out
    assert events["step.completed"][-1] == "by=probe"
    retried = milepost("runs", "show", "order/o-4", "--history")[1]
    assert "at=+2.5s code=TIMEOUT" in retried
    assert "at=noon" in retried
    no_history = milepost("runs", "show", "order/o-2", "--history")[1]
    assert "no history is kept" in no_history


def test_show_in_json_has_stable_keys(milepost: Call, with_runs: str) -> None:
    (run,) = lines(milepost("runs", "show", "order/o-1", "--history", "--json")[1])
    assert list(run) == [
        *("run", "id", "tenant", "service", "definition", "state", "code", "cause", "correlation", "trace"),
        *("created_at", "updated_at", "finished_at", "wake_at", "deadline_at", "active_s", "lock", "steps"),
        *("history", "requests", "looked"),
    ]
    assert (run["state"], run["trace"]) == ("WAITING", TRACE)
    assert [step["step"] for step in run["steps"]] == ["reserve_stock", "charge_card", "ship", "delivered"]
    assert run["steps"][3]["wake_at"] == "2126-12-02T18:13:04Z"
    assert [entry["event"] for entry in run["history"]] == [
        *("run.started", "step.started", "step.unknown", "step.completed"),
    ]
    (short,) = lines(milepost("runs", "show", "order/o-5", "--json")[1])
    assert "history" not in short
    assert short["steps"][0]["in_doubt"] is True


def test_a_run_is_found_by_a_unique_beginning_of_its_id(milepost: Call, with_runs: str) -> None:
    assert milepost("runs", "show", "0197ffff-0000-7000-8000-000000000005")[1].startswith("order/o-5")
    status, _, err = milepost("runs", "show", "01970")
    assert status == 2
    assert err.startswith("MP606 ")
    assert "order/o-4" in err
    status, _, err = milepost("runs", "show", "abcdef")
    assert status == 3
    assert err.startswith("MP604 ")


def test_what_is_not_there_says_why(milepost: Call, with_runs: str) -> None:
    assert milepost("runs", "show", "order/o-99")[0] == 3
    status, _, err = milepost("runs", "show", "order/o-0")
    assert status == 3
    assert "ended as SUCCEEDED" in err
    status, _, err = milepost("runs", "show", "refund/r-1")
    assert status == 2
    assert "tenant acme" in err
    assert "tenant duff" in err


def test_the_app_adds_what_only_the_definition_knows(milepost: Call, with_runs: str, shop: str) -> None:
    out = milepost("runs", "show", "order/o-1", "--app", shop)[1].splitlines()
    assert out[0].startswith(
        "order/o-1  WAITING  delivered until 2126-12-02 18:13Z (then RECONCILE)   trace "
    )
    assert out[-1].split() == ["close_order", "not", "reached"]
    (run,) = lines(milepost("runs", "show", "order/o-1", "--json", "--app", shop)[1])
    assert run["steps"][3]["on_timeout"] == "reconcile"


def test_a_broken_app_does_not_keep_an_operator_from_looking(milepost: Call, with_runs: str) -> None:
    status, out, err = milepost("runs", "show", "order/o-1", "--app", "no_such_module:service")
    assert status == 0
    assert out.startswith("order/o-1  WAITING")
    assert err.startswith("without the application: MP609")
