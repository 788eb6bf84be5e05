"""The notify example as a user runs it: lost answers, kills and odd webhooks, judged by the provider's own book."""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path

from tests.support import servers
from tests.support.programs import finished, left_behind, shell

COUNT = 20


def test_every_message_is_sent_once_although_answers_get_lost_and_processes_are_killed(
    tmp_path: Path, postgres_server: servers.DatabaseServer, kafka_server: servers.MessageServer
) -> None:
    env = shell(postgres_server, kafka_server)
    words = ("--count", str(COUNT))
    done = finished("milepost.examples.notify", *words, where=tmp_path, env=env, within=200)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    last = done.stdout.splitlines()[-1]
    expected = (
        rf"notify ok: {COUNT} notifications, 17 delivered, 2 bounced, 1 failed, 3 kills, 0 lost, 0 doubled"
    )
    assert re.fullmatch(expected, last), last
    assert left_behind(tmp_path) == []
    ledger = sqlite3.connect(tmp_path / "build" / "notify" / "provider.sqlite")
    try:
        sent = ledger.execute("SELECT tag, count(*), min(state) FROM message GROUP BY tag").fetchall()
        taken = ledger.execute("SELECT count(*) FROM hook WHERE forged AND answer = 200").fetchone()
        odd = ledger.execute(
            "SELECT count(*) FROM (SELECT 1 FROM hook WHERE NOT forged AND answer = 200"
            " GROUP BY message HAVING count(*) > 1)"
        ).fetchone()
    finally:
        ledger.close()
    numbers = sorted(int(tag.rpartition("-")[2]) for tag, _, _ in sent)
    assert numbers == [n for n in range(COUNT) if n != 3], "the third has no recipient, every other was sent"
    assert {count for _, count, _ in sent} == {1}
    assert taken == (0,)
    assert odd[0] >= 3, "some were reported more than once"
    result = json.loads((tmp_path / "build" / "notify" / "result.json").read_text())
    assert result["ok"] is True
    assert result["kills"][1][0] == "web"


def test_too_few_are_refused(tmp_path: Path) -> None:
    done = finished("milepost.examples.notify", "--count", "3", where=tmp_path, env={}, within=60)
    assert done.returncode == 2
    assert "20 or more" in done.stderr
