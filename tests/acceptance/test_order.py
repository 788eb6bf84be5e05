"""The order example as a user runs it: every kind of order, kills, a person at the command line, ledgers compared."""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path

from tests.support import servers
from tests.support.programs import finished, left_behind, shell

COUNT = 20


def rows(path: Path, sql: str) -> list[tuple[object, ...]]:
    ledger = sqlite3.connect(path)
    try:
        return ledger.execute(sql).fetchall()
    finally:
        ledger.close()


def test_every_charge_is_delivered_or_refunded_and_nobody_gets_what_is_not_there(
    tmp_path: Path, postgres_server: servers.DatabaseServer, kafka_server: servers.MessageServer
) -> None:
    env = shell(postgres_server, kafka_server)
    words = ("--count", str(COUNT))
    done = finished("milepost.examples.order", *words, where=tmp_path, env=env, within=280)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    last = done.stdout.splitlines()[-1]
    # 17 and 18 want the same last item: one of them is charged.
    expected = (
        f"order ok: {COUNT} orders, 16 charged = 11 delivered + 4 refunded + 1 kept, 4 never charged (2 without "
        "stock), 3 kills, 0 lost, 0 doubled, 0 wrong"
    )
    assert last == expected
    assert left_behind(tmp_path) == []
    folder = tmp_path / "build" / "order"
    got = rows(folder / "warehouse.sqlite", "SELECT order_id FROM effect WHERE subject = 'last-0'")
    assert len(got) == 1, "the warehouse's own book: one of two has the last item"
    assert re.search(r"-01[78]$", str(got[0][0]))
    refunds = rows(folder / "bank.sqlite", "SELECT substr(order_id, -3) FROM effect WHERE kind = 'refund'")
    assert sorted(refunds) == [("006",), ("009",), ("015",), ("016",)]
    sent = rows(folder / "mailer.sqlite", "SELECT count(*), count(DISTINCT order_id) FROM effect")
    assert sent == [(COUNT, COUNT)]
    result = json.loads((folder / "result.json").read_text())
    assert [(word["by"], word["said"]) for word in result["words"] if word["order_id"].endswith("-015")] == [
        ("ann", "reject"),
        ("bob", "retry"),
        ("bob", "approve"),
    ]


def test_too_few_are_refused(tmp_path: Path) -> None:
    done = finished("milepost.examples.order", "--count", "3", where=tmp_path, env={}, within=60)
    assert done.returncode == 2
    assert "20 or more" in done.stderr
