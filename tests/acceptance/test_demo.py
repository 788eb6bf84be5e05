"""The demo as a user runs it: a program of its own, with processes that are killed, judged by the ledgers."""

from __future__ import annotations

import asyncio
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
from milepost.devstack.databases import drop_database
from playwright.async_api import expect

from tests.support import servers
from tests.support.browser import chromium, needs_browser
from tests.support.house import ROOT
from tests.support.waiting import until

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


@needs_browser
async def test_what_is_kept_shows_its_tour_in_a_browser_and_can_be_ended(
    folder: Path, environment: dict[str, str]
) -> None:
    make = await said(["make", "-n", "demo", "KEEP=1"], ROOT, environment)
    assert "milepost demo --keep" in make
    out = await said(command("--orders", "20", "--keep"), folder, environment)
    (pids,) = re.findall(r"^  kill ([\d ]+)", out, re.MULTILINE)
    try:
        (link,) = re.findall(r"http://\S+/sign-in/link\?token=\S+&next=/tour", out)
        figures = json.loads((folder / "build" / "demo.json").read_text())
        async with chromium() as browser:
            page = await browser.new_page()
            await page.goto(link)
            assert page.url.endswith("/tour")
            await expect(page.locator("h1")).to_have_text("What happened in the demo")
            told = f"20 orders went through a shop, a bank, a warehouse and a carrier: {figures['completed']} were"
            await expect(page.locator("main")).to_contain_text(told)
            await expect(page.locator("main")).to_contain_text("0 effects lost, 0 duplicated")
            await page.locator("main a[href^='/runs/0']").first.click()
            await expect(page.locator("h1")).to_contain_text("order/")
        assert set(map(int, pids.split())) <= set(left_behind(folder)), "everything keeps running"
    finally:
        for pid in pids.split():
            os.kill(int(pid), signal.SIGINT)
        await until(lambda: not left_behind(folder), within=60, what="every process gone")
        (url,) = re.findall(r"export MILEPOST_DATABASE_URL=(\S+)", out)
        await asyncio.to_thread(drop_database, environment["MILEPOST_DATABASE_URL"], url.rpartition("/")[2])


async def said(words: list[str], folder: Path, environment: dict[str, str]) -> str:
    """Run a program to its end, which must be a good one, and return what it said."""
    process = await asyncio.create_subprocess_exec(
        *words, cwd=folder, env=environment, stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(240):
        out, _ = await process.communicate()
    assert process.returncode == 0, out.decode()[-6000:]
    return out.decode()


def test_too_few_orders_are_refused(tmp_path: Path) -> None:
    done = subprocess.run(command("--orders", "3"), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "20 or more" in done.stderr
