"""The command line against a real database and broker: what `outbox`, `check` and `doctor` see."""

from __future__ import annotations

import pytest

from tests.support.console_calls import (
    SQL,
    Call,
    _no_environment,
    codes,
    execute,
    lines,
    milepost,
    near_kafka,
    shop,
)

__all__ = ["_no_environment", "milepost", "near_kafka", "shop"]


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
        "MP751": "warning",
        "MP752": "error",
    }
    assert all(item["fix"] for item in lines(out) if item["code"])
    assert "order/o-3" in next(item["text"] for item in lines(out) if item["code"] == "MP627")


def test_how_long_nobody_has_known_counts_from_the_doubt_and_not_from_the_last_probe(
    milepost: Call, database_url: str, near_kafka: str
) -> None:
    asked = (
        "UPDATE milepost.step SET since = milepost.clock() - interval '3 seconds',"
        " doubt_at = milepost.clock() - interval '2 hours' WHERE state IN ('UNKNOWN', 'RECONCILING')"
    )
    execute(database_url, (SQL / "console_views.sql").read_text(), asked, "SELECT 1")
    for n, state in ((1, "UNKNOWN"), (2, "RECONCILING")):
        run = f"order/o-{n}"
        status, out, err = milepost("runs", "show", f"01970000-0000-7000-8000-00000000000{n}")
        assert status == 0, err
        head, *rows = out.splitlines()
        assert (
            f"charge {state} for 2h" in head and "2h" in next(row for row in rows if "charge" in row).split()
        )
        assert run in next(
            line for line in milepost("runs", "list")[1].splitlines() if "2h" in line and run in line
        )
    texts = {item["code"]: item["text"] for item in lines(milepost("doctor", "--json")[1])}
    assert "order/o-1, 2h" in texts["MP626"]


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
