"""The campaign example as a user runs it: lost answers, kills, a person at the command line, a rerun of the failed."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

from tests.support import servers
from tests.support.programs import finished, left_behind, shell

COUNT = 300


def test_every_reader_gets_one_letter_and_only_what_failed_is_run_again(
    tmp_path: Path, postgres_server: servers.DatabaseServer, kafka_server: servers.MessageServer
) -> None:
    env = shell(postgres_server, kafka_server)
    words = ("--recipients", str(COUNT))
    done = finished("milepost.examples.campaign", *words, where=tmp_path, env=env, within=300)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == (
        "campaign ok: 300 recipients, 291 reached and 9 of 9 failed by a rerun, 13 run again by a person, "
        "380 messages, 3 kills, 0 lost, 0 doubled, 0 wrong"
    )
    assert left_behind(tmp_path) == []
    folder = tmp_path / "build" / "campaign"
    ledger = sqlite3.connect(folder / "provider.sqlite")
    try:
        sent = ledger.execute("SELECT count(*), count(DISTINCT tag) FROM message").fetchone()
        odd = ledger.execute("SELECT DISTINCT substr(recipient, 14) FROM message ORDER BY 1").fetchall()
        moved = ledger.execute(
            "SELECT count(*) FROM message WHERE tag LIKE 'spring-%' AND recipient LIKE '%@home.example'"
        ).fetchone()
    finally:
        ledger.close()
    assert sent == (COUNT + 80, COUNT + 80)
    assert odd == [("blocked.example",), ("example.com",), ("home.example",)], "nothing to gone.example"
    assert moved == (9,)
    result = json.loads((folder / "result.json").read_text())
    assert [(line["state"], line["failed"], line["again"]) for line in result["campaigns"]] == [
        ("PARTIALLY_SUCCEEDED", 9, 0),
        ("SUCCEEDED", 0, 13),
        ("SUCCEEDED", 0, 0),
    ]
    assert [kill["process"] for kill in result["kills"]] == ["engine-1", "provider", "engine-2"]
    assert [(word["step"], word["sent"]) for word in result["words"]] == [("trial", 37)], (
        "and nobody else before"
    )


def test_too_few_are_refused(tmp_path: Path) -> None:
    done = finished("milepost.examples.campaign", "--recipients", "3", where=tmp_path, env={}, within=60)
    assert done.returncode == 2
    assert "200 or more" in done.stderr
