"""Liveness is progress: what probes are told, and when a process gives up so that its platform starts another."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import asyncpg
import pytest
from milepost.consumers.probes import Probes, answering
from milepost.consumers.watchdog import Watchdog
from milepost.devstack.ports import free_port
from milepost.schemas.errors import ConnectError, StartError, StateError
from milepost.schemas.ids import SystemClock
from milepost.streams.lifecycle import Health, Stop, run_roles
from milepost.streams.topics import ensure_topics

from tests.support.inbox import Sent, headers, send
from tests.support.process import Served, served
from tests.support.waiting import until

AFTER = timedelta(seconds=2)


@dataclass
class Part:
    """A role whose health the test sets."""

    name: str = "consumer books"
    ok: bool = True
    stuck: float = 0.0

    async def run(self, stop: Stop) -> None:
        """Do nothing until asked to stop."""
        await stop.wait()

    def health(self) -> Health:
        """Return what the test said."""
        return Health(self.ok, "orders/3: its handlers have been running for 7 s")

    def stuck_for(self) -> float:
        """Return what the test said."""
        return self.stuck


def new_stop() -> Stop:
    return Stop(SystemClock(), timedelta(seconds=5))


async def asked(port: int, request: bytes) -> tuple[int, dict[str, Any]]:
    """Send bytes; return status and body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        await writer.drain()
        answer = await asyncio.wait_for(reader.read(), 20)
    finally:
        writer.close()
        await writer.wait_closed()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body or b"{}")


async def get(port: int, path: str, method: str = "GET") -> tuple[int, dict[str, Any]]:
    return await asked(port, f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())


async def test_probes_are_told_of_progress() -> None:
    part, stop, port = Part(), new_stop(), free_port()
    async with answering(f"127.0.0.1:{port}", Probes([part], stop, AFTER)):
        assert (await get(port, "/live"))[0] == (await get(port, "/ready?x=1"))[0] == 200
        part.ok = False
        assert (await get(port, "/live"))[0] == 200, "red for a moment is no reason to be ended"
        status, body = await get(port, "/ready")
        assert (status, body["ok"]) == (503, False)
        assert body["parts"]["consumer books"]["detail"].startswith("orders/3")
        part.stuck = 2.5
        assert (await get(port, "/live"))[0] == 503
        part.ok, part.stuck = True, 0.0
        stop.ask()
        assert ((await get(port, "/live"))[0], (await get(port, "/ready"))[0]) == (200, 503)
    with pytest.raises(OSError):
        await get(port, "/live")


async def test_probes_answer_only_what_they_know() -> None:
    port = free_port()
    async with answering(f"127.0.0.1:{port}", Probes([Part()], new_stop(), AFTER)):
        assert await get(port, "/live", "HEAD") == (200, {})
        assert [(await get(port, "/"))[0], (await get(port, "/live", "POST"))[0]] == [404, 405]
        assert (await asked(port, b"\x16\x03\x01 nonsense\r\n\r\n"))[0] == 400
        assert (await asked(port, b"GET /live HTTP/1.1\r\nX: " + b"y" * 20_000 + b"\r\n\r\n"))[0] == 400
        assert (await get(port, "/live"))[0] == 200, "it goes on"


async def test_an_address_where_nobody_can_listen_is_refused() -> None:
    port = free_port()
    async with answering(f"127.0.0.1:{port}", Probes([], new_stop(), AFTER)):
        for address in (f"127.0.0.1:{port}", "127.0.0.1", "somewhere", "127.0.0.1:99999", ":80"):
            with pytest.raises(StartError) as refused:
                async with answering(address, Probes([], new_stop(), AFTER)):
                    pass
            assert refused.value.code == "MP221" and address in refused.value.text


async def test_a_stuck_reader_ends_the_process_only_while_both_servers_answer() -> None:
    part, stop, looked, away = Part(ok=False, stuck=3.0), new_stop(), 0, True

    async def servers_answer() -> None:
        nonlocal looked
        looked += 1
        if away:
            raise ConnectError("MP501", "away")

    watchdog = Watchdog([part], after=AFTER, grace=AFTER, servers_answer=servers_answer)
    running = asyncio.create_task(run_roles([part, watchdog], stop))
    await until(lambda: looked >= 2, within=20)
    assert not running.done(), "a new process would do no better"
    part.stuck = 0.0
    away = False
    seen = looked
    await asyncio.wait({running}, timeout=2.5)
    assert not running.done() and looked == seen, "it got on by itself"
    part.stuck = 3.0
    with pytest.raises(ExceptionGroup) as ended:
        await asyncio.wait_for(running, 20)
    (error,) = ended.value.exceptions
    assert isinstance(error, StateError) and error.code == "MP430"
    assert (
        "consumer books" in error.text and "orders/3" in error.text and "MILEPOST_STUCK_AFTER" in error.text
    )
    # The thread that would end a process which does not end by itself is still there; nothing else of it matters here.
    watchdog.pulse.stop()


async def test_a_server_that_does_not_answer_is_no_loop_that_stands_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    part, stop, ended, asked_for = Part(ok=False, stuck=3.0), new_stop(), list[int](), 0
    monkeypatch.setattr("milepost.consumers.watchdog.os._exit", ended.append)

    async def servers_answer() -> None:
        nonlocal asked_for
        asked_for += 1
        await asyncio.sleep(5)
        raise ConnectError("MP501", "away")

    watchdog = Watchdog([part], after=AFTER, grace=AFTER, servers_answer=servers_answer)
    running = asyncio.create_task(run_roles([part, watchdog], stop))
    await until(lambda: asked_for == 2, within=30)
    stop.ask()
    await asyncio.wait_for(running, 20)
    assert ended == [], "a new process would do no better"


@pytest.fixture
async def env(kafka: str, topic_prefix: str, database_url: str) -> AsyncIterator[dict[str, str]]:
    await ensure_topics(kafka, [f"{topic_prefix}.moves"], partitions=2)
    connection = await asyncpg.connect(database_url)
    await connection.execute(
        "CREATE TABLE effect (n bigserial PRIMARY KEY, account text NOT NULL, step integer NOT NULL)"
    )
    await connection.close()
    yield {
        "MILEPOST_APP": "tests.support.apps.flow_service:service",
        "MILEPOST_DATABASE_URL": database_url,
        "MILEPOST_KAFKA": kafka,
        "MILEPOST_STUCK_AFTER": "6s",
        "MILEPOST_GRACE": "2s",
        "MILEPOST_HEALTH": f"127.0.0.1:{free_port()}",
        "FLOW": topic_prefix,
    }


def moved(account: str) -> Sent:
    body = json.dumps({"account": account, "step": 0}).encode()
    return Sent(body, headers("", type="flow.moved"), partition=0)


async def status(env: dict[str, str], path: str) -> int:
    try:
        return (await get(int(env["MILEPOST_HEALTH"].rpartition(":")[2]), path))[0]
    except OSError:
        return 0


async def test_a_hung_handler_and_a_blocked_loop_end_their_processes(env: dict[str, str]) -> None:
    blocked = {**env, "FLOW": f"{env['FLOW']}b", "MILEPOST_HEALTH": f"127.0.0.1:{free_port()}"}
    await ensure_topics(env["MILEPOST_KAFKA"], [f"{blocked['FLOW']}.moves"], partitions=1)
    async with served(env, "consumers") as (one,), served(blocked, "consumers") as (other,):
        assert (await status(env, "/ready"), await status(env, "/live")) == (200, 200)
        for flow, account in ((env, "hang"), (blocked, "block")):
            await send(env["MILEPOST_KAFKA"], f"{flow['FLOW']}.moves", [moved(account)])

        async def red() -> bool:
            return await status(env, "/ready") == 503

        await until(red, within=30, what="ready red")
        assert not one.ended, "red is not the end yet"
        assert (await one.wait(90), await other.wait(90)) == (3, 3), [one.tail(), other.tail()]
    assert_says(one, "MP430", "no progress", "its handlers have been running", "MILEPOST_STUCK_AFTER")
    assert_says(other, "MP431", "has stood still", "flow_service.py")


def assert_says(process: Served, *words: str) -> None:
    log = "\n".join(process.log)
    assert not [word for word in words if word not in log], log
