"""The demo as a user runs it: a program of its own, with processes that are killed, judged by the ledgers."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support import servers

ORDERS = 40


@pytest.fixture
def environment(
    postgres_server: servers.DatabaseServer, kafka_server: servers.MessageServer
) -> dict[str, str]:
    """The environment of a shell in which `milepost dev` has been read."""
    return {
        **os.environ,
        "MILEPOST_DATABASE_URL": postgres_server.url(),
        "MILEPOST_KAFKA": kafka_server.bootstrap,
        "PYTHONUNBUFFERED": "1",
    }


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "milepost.examples.shop.demo", *words]


def left_behind(folder: Path) -> list[int]:
    """Processes that were started for this folder and still run."""
    found = []
    for process in psutil.process_iter(["cwd"]):
        if process.info["cwd"] == str(folder / "build" / "demo"):
            found.append(process.pid)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    assert left_behind(tmp_path) == []


def test_nothing_is_lost_or_duplicated_although_three_processes_are_killed(
    folder: Path, environment: dict[str, str]
) -> None:
    done = subprocess.run(
        command("--orders", str(ORDERS)),
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    last = done.stdout.splitlines()[-1]
    counts = re.fullmatch(
        rf"demo ok: {ORDERS} orders, (\d+) completed, (\d+) compensated, (\d+) timed out, "
        r"3 kills, 0 lost, 0 duplicated",
        last,
    )
    assert counts, last
    completed, compensated, timed_out = map(int, counts.groups())
    assert completed + compensated + timed_out == ORDERS
    assert min(completed, compensated, timed_out) > 0
    figures = json.loads((folder / "build" / "demo.json").read_text())
    assert figures["ok"] is True
    assert (figures["completed"], figures["compensated"], figures["timed_out"]) == (
        completed,
        compensated,
        timed_out,
    )
    assert [kill["process"] for kill in figures["kills"]] == ["relay", "worker-1", "orchestrator"]
    assert figures["effects"]["charge"] - figures["effects"]["refund"] == completed
    assert f"milepost runs show {figures['shown']}" in done.stdout


def test_ctrl_c_stops_everything(folder: Path, environment: dict[str, str]) -> None:
    with subprocess.Popen(
        command("--orders", str(ORDERS)), cwd=folder, env=environment, stdout=subprocess.PIPE, text=True
    ) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if "processes are ready" in line:
                break
        demo.send_signal(signal.SIGINT)
        rest = demo.stdout.read()
    assert demo.returncode == 130, rest
    assert "demo ok" not in rest


def test_too_few_orders_are_refused(tmp_path: Path) -> None:
    done = subprocess.run(command("--orders", "3"), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "20 or more" in done.stderr
