"""The local servers: apart from each other, gone afterwards, clear words when something is missing."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from milepost.devstack import guard
from milepost.devstack.databases import answers
from milepost.devstack.ports import listens, run_apart, wait_until
from milepost.devstack.postgres import Postgres
from milepost.devstack.probe import groups_work
from milepost.devstack.stack import down, running, up

from tests.support.talk import execute

pytestmark = pytest.mark.usefixtures("devstack_data")


def test_two_stacks_at_once_do_not_meet() -> None:
    with running() as one:
        with running() as other:
            assert one.database_url != other.database_url
            assert one.kafka != other.kafka
            run_apart(lambda: execute(one.database_url, "CREATE TABLE only_here ()"))
            found = run_apart(lambda: execute(other.database_url, "SELECT to_regclass('only_here')::text"))
            assert found is None
        assert not answers(other.database_url)
        assert answers(one.database_url)
        assert run_apart(lambda: groups_work(one.kafka))
        assert one.env() == {
            "MILEPOST_DATABASE_URL": one.database_url,
            "MILEPOST_KAFKA": one.kafka,
            "MILEPOST_CREATE_TOPICS": "true",
        }


def test_up_is_idempotent_and_down_leaves_nothing(tmp_path: Path, devstack_data: Path) -> None:
    state = tmp_path / "stack.json"
    words: list[str] = []
    stack = up(state=state, say=words.append)
    try:
        assert words
        assert up(state=state, say=words.append) == stack
        noted = [entry["record"] for entry in json.loads(state.read_text()).values()]
    finally:
        stopped = down(state=state, say=words.append)
    assert stopped == 2
    assert not state.exists()
    assert not any(guard.same(record["pid"], record["created"]) for record in noted if record["pid"])
    assert list(devstack_data.iterdir()) == []
    assert not answers(stack.database_url)
    assert down(state=state, say=words.append) == 0


def test_up_replaces_a_server_that_has_died(tmp_path: Path, devstack_data: Path) -> None:
    state = tmp_path / "stack.json"
    stack = up(state=state, say=print)
    try:
        record = json.loads(state.read_text())["postgres"]["record"]
        if not record["pid"]:
            pytest.skip("the server runs in a container")
        guard.finish(record["pid"], record["created"], signal.SIGKILL)
        again = up(state=state, say=print)
        assert again.kafka == stack.kafka
        assert again.database_url != stack.database_url
        assert answers(again.database_url)
    finally:
        assert down(state=state, say=print) == 2
    assert list(devstack_data.iterdir()) == []


def test_down_spares_a_process_that_merely_has_the_same_id(tmp_path: Path) -> None:
    state = tmp_path / "stack.json"
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        created = psutil.Process(stranger.pid).create_time() - 60
        record = {"pid": stranger.pid, "created": created, "sign": int(signal.SIGTERM)}
        state.write_text(json.dumps({"kafka": {"address": "127.0.0.1:1", "record": record}}))
        assert down(state=state, say=print) == 0
        assert stranger.poll() is None
        stranger.communicate(b"\n")
    assert not state.exists()


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_server_ends_with_its_starter_whatever_ends_it(sign: int, devstack_data: Path) -> None:
    code = (
        "import sys; from milepost.devstack.postgres import Postgres\n"
        "with Postgres() as server: print(server.port, flush=True); sys.stdin.read()"
    )
    script = [sys.executable, "-c", code]
    with subprocess.Popen(
        script, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as starter:
        assert starter.stdout is not None
        port = int(starter.stdout.readline())
        assert listens(port)
        starter.send_signal(sign)
        starter.wait(30)
    assert wait_until(lambda: not listens(port), seconds=30)
    assert wait_until(lambda: not list(devstack_data.iterdir()), seconds=30)


def test_given_servers_are_used_and_left_alone(monkeypatch: pytest.MonkeyPatch, devstack_data: Path) -> None:
    with Postgres() as server:
        monkeypatch.setenv("MILEPOST_DATABASE_URL", server.url())
        with running(kafka=False) as stack:
            assert stack.database_url == server.url()
        assert answers(server.url())
        assert len(list(devstack_data.iterdir())) <= 1
