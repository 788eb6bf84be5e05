"""The command line against a real database and broker."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from milepost.console import main
from milepost.console.store import Sql

from tests.support import servers

SQL = Path(__file__).parent.parent / "support" / "sql"
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
        *("history", "requests"),
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


def test_check_sees_the_schema(milepost: Call, shop: str, empty_database_url: str) -> None:
    status, out, _ = milepost("check", "--app", shop)
    assert status == 0
    assert out.splitlines()[0] == "order v1: 3 steps, 0 undos, 1 probe, no findings"
    assert out.splitlines()[1].startswith("schema version ")
    status, out, _ = milepost("check", "--app", shop, "--database", empty_database_url)
    assert status == 3
    assert "MP620" in out


ROW = """
INSERT INTO milepost.outbox (id, topic, aggregatetype, aggregateid, type, payload, created_at)
VALUES (gen_random_uuid(), 't', 'x', 'k', 'x.y', '\\x00', clock_timestamp() - interval '{age}')
"""
POSITION = """
INSERT INTO milepost.outbox_position (outbox, epoch, n, previous, current, last_seq, system_identifier)
SELECT 'main', 3, {n}, {previous}, pg_current_snapshot(), {last_seq}, 1
"""


def test_the_outbox_counts_what_no_position_covers(milepost: Call, database_url: str) -> None:
    def lag() -> tuple[int, float | None]:
        (item,) = lines(milepost("outbox", "--json")[1])
        return item["lag"], item["oldest_s"]

    assert milepost("outbox")[1].splitlines() == [
        "lag 0, nothing waits; no relay has ever run here",
        "  leader: none",
        "  position: none stored yet",
        "  partitions: 7 days ahead",
    ]
    execute(database_url, ROW.format(age="90 seconds"), ROW.format(age="1 second"), "SELECT 1")
    rows, oldest = lag()
    assert rows == 2
    assert oldest is not None and 90 <= oldest < 120
    first = execute(database_url, "SELECT min(seq) AS seq FROM milepost.outbox")["seq"]
    execute(database_url, POSITION.format(n=1, previous="'1:1:'", last_seq=first), "SELECT 1")
    rows, oldest = lag()
    assert rows == 1
    assert oldest is not None and oldest < 60
    execute(database_url, POSITION.format(n=2, previous="pg_current_snapshot()", last_seq=0), "SELECT 1")
    assert lag() == (0, None)
    execute(database_url, ROW.format(age="0 seconds"), "SELECT 1")
    assert lag()[0] == 1
    execute(
        database_url,
        "INSERT INTO milepost.outbox_lease VALUES ('main', gen_random_uuid(), 3, milepost.clock() + interval '1 h')",
        "SELECT 1",
    )
    assert milepost("outbox")[1].splitlines()[0].endswith("; relay epoch 3")


def codes(out: str) -> dict[str, str]:
    """Return severity by code of a doctor's findings."""
    return {item["code"]: item["severity"] for item in lines(out) if item["code"]}


@pytest.fixture
def near_kafka(kafka: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("MILEPOST_KAFKA", kafka)
    return kafka


def test_doctor_warns_of_a_database_where_nothing_runs_yet(milepost: Call, near_kafka: str) -> None:
    status, out, _ = milepost("doctor", "--json")
    assert status == 0
    assert codes(out) == {"MP622": "warning", "MP624": "warning"}
    assert milepost("doctor", "--strict")[0] == 1
    assert "What to do: Start one" in milepost("doctor")[1]


def test_doctor_finds_every_kind_of_trouble(
    milepost: Call, database_url: str, near_kafka: str, shop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILEPOST_CREATE_TOPICS", "false")
    trouble = [(SQL / f"console_{name}.sql").read_text() for name in ("runs", "trouble")]
    execute(database_url, *trouble, "SELECT 1")
    status, out, _ = milepost("doctor", "--json", "--app", shop)
    assert status == 1
    assert codes(out) == {
        "MP621": "error",
        "MP622": "error",
        "MP624": "error",
        "MP625": "error",
        "MP626": "warning",
        "MP627": "warning",
        "MP628": "error",
        "MP629": "warning",
        "MP630": "warning",
        "MP631": "warning",
        "MP632": "error",
        "MP633": "error",
        "MP634": "error",
    }
    assert all(item["fix"] for item in lines(out) if item["code"])
    assert "order/o-3" in next(item["text"] for item in lines(out) if item["code"] == "MP627")


def test_the_outbox_shows_what_the_relay_put_aside(milepost: Call, database_url: str) -> None:
    execute(
        database_url, *((SQL / f"console_{name}.sql").read_text() for name in ("runs", "trouble")), "SELECT 1"
    )
    status, out, _ = milepost("outbox")
    assert status == 1
    assert "MP633 2 parked: topic nowhere missing" in out
    assert "MP634 1 parked: the record is larger than topic orders takes" in out
    (item,) = lines(milepost("outbox", "--json")[1])
    parked = [(entry["topic"], entry["code"], entry["amount"]) for entry in item["parked"]]
    assert parked == [("nowhere", "TOPIC_MISSING", 2), ("orders", "TOO_LARGE", 1)]
    done = "UPDATE milepost.dead_letter SET status = 'RESOLVED', resolved_at = now(), resolved_by = 'ann'"
    execute(database_url, done, "SELECT 1")
    assert milepost("outbox")[0] == 0


def test_doctor_is_well_when_all_is_well(milepost: Call, near_kafka: str, database_url: str) -> None:
    execute(
        database_url,
        "INSERT INTO milepost.outbox_lease VALUES ('main', gen_random_uuid(), 1, milepost.clock() + interval '1 h')",
        "INSERT INTO milepost.worker (id, service, name, roles, queues, definitions, expires_at) VALUES "
        "(gen_random_uuid(), 'shop', 'h:1', '{worker}', '{default}', '{}', milepost.clock() + interval '1 h')",
        "SELECT 1",
    )
    status, out, _ = milepost("doctor", "--strict")
    assert status == 0
    assert out.endswith("all is well\n")


def test_doctor_sees_the_other_server_when_one_is_away(
    milepost: Call, near_kafka: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    status, out, _ = milepost("doctor", "--json", "--database", "postgresql://127.0.0.1:1/nothing")
    assert status == 4
    assert [(item["check"], item["severity"]) for item in lines(out)] == [
        ("postgresql", "error"),
        ("kafka", "ok"),
    ]
    monkeypatch.setenv("MILEPOST_KAFKA", "127.0.0.1:1")
    monkeypatch.setattr("milepost.console.doctor.KAFKA_TIMEOUT", 2.0)
    status, out, _ = milepost("doctor", "--json")
    assert status == 4
    assert lines(out)[-1]["check"] == "kafka"
    assert lines(out)[-1]["severity"] == "error"


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
