"""Dead letters of a service as it runs: parked by its process, looked at and redriven from the command line."""

from __future__ import annotations

import asyncio
import base64
import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from milepost.schemas.packing import unpack_headers

from tests.support.inbox import Sent, committed, headers, send
from tests.support.letters_world import World, opened_world
from tests.support.outbox import arrived
from tests.support.process import served
from tests.support.waiting import until

CONNECT = {
    "topic",
    "partition",
    "offset",
    "connector.name",
    "task.id",
    "stage",
    "class.name",
    "exception.class.name",
    "exception.message",
    "exception.stacktrace",
}


@pytest.fixture
async def world(kafka: str, topic_prefix: str, database_url: str) -> AsyncIterator[World]:
    async with opened_world(kafka, topic_prefix, database_url) as world:
        yield world


async def test_letters_reach_other_tools_and_are_redriven_from_the_command_line(
    world: World, tmp_path: Path
) -> None:
    odd: list[tuple[str, bytes | None]] = [("x", b"\xff\x00"), ("x", b"two"), ("none", None), ("plain", b"7")]
    poison = Sent(value=b"\x00\xff{", headers=[*headers("p-1"), *odd], key=b"\xfekey")
    await world.broken("o-2")
    async with served(world.env, "consumers,relay"):
        await send(world.kafka, world.topic, [poison])
        await world.send("o-1", "o-2")
        await world.send("o-3", key=b"o-2")
        await world.letters(3)
        await world.applied("o-1")
        copies = await until(lambda: _copies(world, 3), within=60, what="copies on the topic")
        _see_copies(world, copies, poison)
        await world.broken()
        status, lines, _ = await world.milepost("dead", "redrive", "2", "--reason", "mended")
        assert (status, [(line["id"], line["outcome"]) for line in lines]) == (0, [(2, "RESOLVED")])
        await world.applied("o-1", "o-2", "o-3")
        status, lines, _ = await world.milepost("dead", "redrive", "2", "--reason", "again")
        assert (status, lines[0]["outcome"], "RESOLVED by ann" in lines[0]["text"]) == (0, "NOOP", True)
        status, lines, _ = await world.milepost("dead", "redrive", "1", "--reason", "try")
        assert (status, lines[0]["outcome"], lines[0]["code"]) == (1, "FAILED_AGAIN", "INVALID_BODY")
        mended = tmp_path / "mended.json"
        mended.write_text('{"order": "o-9", "amount": 1}')
        edit = ("dead", "edit", "1", "--value", str(mended), "--redrive", "--reason", "mended by hand")
        status, lines, err = await world.milepost(*edit)
        assert (status, lines[0]["edited_from"], lines[1]["outcome"]) == (0, 1, "RESOLVED"), err
        await world.applied("o-1", "o-2", "o-3", "o-9")
        status, _, err = await world.milepost(*edit)
        assert (status, "MP774" in err, f"edited as letter {lines[0]['id']}" in err) == (3, True, True)
        await world.broken("o-5")
        await world.send("o-5")
        await until(lambda: _open(world), within=60, what="a letter of o-5")
        words = ("dead", "ignore", "--topic", world.topic, "--yes", "--reason", "poison")
        assert (await world.milepost(*words))[1][0]["outcome"] == "IGNORED"
    assert (await committed(world.kafka, f"{world.prefix}-books"))[0] == 5


async def _open(world: World) -> bool:
    return bool(await world.effects.value("SELECT count(*) FROM milepost.dead_letter WHERE status = 'OPEN'"))


async def _copies(world: World, count: int) -> list[Any]:
    found = (await arrived(world.kafka, f"{world.prefix}.dead")).all()
    return found if len(found) >= count else []


def _see_copies(world: World, copies: list[Any], poison: Sent) -> None:
    by_offset = {dict(copy.headers)["__connect.errors.offset"]: copy for copy in copies}
    assert sorted(by_offset) == [b"0", b"2", b"3"] and len(copies) == 3
    raw, failed = by_offset[b"0"], by_offset[b"2"]
    for copy in copies:
        names = {name for name, _ in copy.headers if name.startswith("__connect.errors.")}
        assert {name.removeprefix("__connect.errors.") for name in names} == CONNECT
    found = {name: value.decode() for name, value in raw.headers}
    assert raw.value == poison.value, "byte for byte"
    assert found["plain"] == "7" and "x" not in found and found["ce_id"] == "p-1"
    assert unpack_headers(found["__milepost.errors.headers"].encode()) == list(poison.headers)
    assert (found["__milepost.errors.key.encoding"], base64.b64decode(raw.key)) == ("base64", poison.key)
    assert found["__connect.errors.stage"] == "VALUE_CONVERTER"
    found = {name: value.decode() for name, value in failed.headers}
    assert (failed.key, json.loads(failed.value)["order"]) == (b"o-2", "o-2")
    assert found["__connect.errors.topic"] == world.topic
    assert found["__connect.errors.connector.name"] == f"{world.prefix}-books"
    assert found["__connect.errors.stage"] == "TASK_PUT"
    assert found["__connect.errors.exception.class.name"] == "ValueError"
    assert found["__connect.errors.exception.message"] == "ValueError: o-2 is broken"
    assert "o-2 is broken" in found["__connect.errors.exception.stacktrace"]
    assert found["__connect.errors.class.name"].endswith("letters_service.book")


async def test_a_kill_in_the_middle_of_a_redrive_loses_nothing_and_the_effect_is_there_once(
    world: World,
) -> None:
    await world.broken("wait-1")
    async with served(world.env, "consumers") as (process,):
        await world.send("wait-1")
        await world.letters(1)
        await world.broken()
        runs = await world.effects.value("SELECT count(*) FROM run")
        asking = asyncio.create_task(
            world.milepost("dead", "redrive", "1", "--reason", "mended", "--wait", "60")
        )
        await until(lambda: world.effects.value("SELECT count(*) > $1 FROM run", runs), within=30)
        process.send(signal.SIGKILL)
        await process.wait()
        assert await world.effects.orders() == []
        assert await world.effects.value("SELECT status FROM milepost.dead_letter") == "RETRY_PENDING"
        await world.database.pool.execute("INSERT INTO gate VALUES (true)")
        async with served(world.env, "consumers"):
            status, lines, _ = await asking
            await world.send("o-2")
            await world.applied("wait-1", "o-2")
    assert (status, lines[0]["outcome"]) == (0, "RESOLVED")
