"""Real processes killed at each of three positions: before the effect, right after it, and after the record.

What runs again in each case, and what the ledger says in the end: for `once` with each `repeat=`, for the idempotency
middleware, and for the work on webhooks.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import httpx
import pytest
from milepost import Milepost, OperationInProgress, OutcomeUnknown, Repeat
from milepost.inbox.operation_model import operation_key
from milepost.streams.database import Database

from tests.support.bank import Bank, Receipt, Refund
from tests.support.engine import settings_for
from tests.support.hooks import hooks
from tests.support.keyed import keyed
from tests.support.process import ROOT
from tests.support.waiting import until

POSITIONS = ("before", "after", "record")
KILLED = -9


@asynccontextmanager
async def crashing(
    url: str, jobs: list[dict[str, Any]]
) -> AsyncIterator[tuple[list[int | None], asyncio.subprocess.Process]]:
    """Start the processes; gives the ports, and the parent."""
    path = os.pathsep.join(part for part in [os.environ.get("PYTHONPATH", ""), str(ROOT)] if part)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.support.apps.crashing", url, json.dumps(jobs)),
        env={**os.environ, "PYTHONPATH": path},
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
    )
    try:
        assert process.stdout is not None
        yield json.loads(await asyncio.wait_for(process.stdout.readline(), 60)), process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def ended(process: asyncio.subprocess.Process) -> list[int]:
    """Wait for all processes; returns their exit codes."""
    assert process.stdout is not None
    codes: list[int] = json.loads(await asyncio.wait_for(process.stdout.readline(), 60))
    await asyncio.wait_for(process.wait(), 30)
    return codes


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    found = Database(settings_for(database_url))
    await found.open()
    await Bank(found.pool, dedupes=False).open()
    try:
        yield found
    finally:
        await found.close()


#: By repeat and position: whether the outcome stays unknown; calls, effects and questions in the end.
OUTCOMES: dict[tuple[Repeat, str], tuple[bool, int, int, int]] = {
    (Repeat.SAFE, "before"): (False, 1, 1, 0),
    (Repeat.SAFE, "after"): (False, 2, 1, 0),
    (Repeat.SAFE, "record"): (False, 1, 1, 0),
    (Repeat.ASK_FIRST, "before"): (False, 1, 1, 1),
    (Repeat.ASK_FIRST, "after"): (False, 1, 1, 1),
    (Repeat.ASK_FIRST, "record"): (False, 1, 1, 0),
    (Repeat.NEVER, "before"): (True, 0, 0, 0),
    (Repeat.NEVER, "after"): (True, 1, 1, 0),
    (Repeat.NEVER, "record"): (False, 1, 1, 0),
}


async def test_once(database: Database, database_url: str) -> None:
    cases = list(OUTCOMES)
    jobs = [{"kind": "once", "repeat": r.value, "at": at, "key": f"{r.value}-{at}"} for r, at in cases]
    async with crashing(database_url, jobs) as (_, process):
        assert await ended(process) == [KILLED] * len(jobs)
    service = Milepost("once", settings=settings_for(database_url))
    try:
        found = await asyncio.gather(*(again(service, database, repeat, at) for repeat, at in cases))
    finally:
        await service.close()
    assert dict(zip(cases, found, strict=True)) == OUTCOMES


async def again(service: Milepost, database: Database, repeat: Repeat, at: str) -> tuple[bool, int, int, int]:
    """Ask again until the dead process's lease has ended, and once more; count what the bank did."""
    bank = Bank(database.pool, dedupes=repeat is Repeat.SAFE)
    key = f"{repeat.value}-{at}"

    async def ask() -> Receipt | bool | None:
        try:
            return await service.once(
                kind="refund",
                key=key,
                request=Refund(order=key),
                result=Receipt,
                repeat=repeat,
                do=bank.pay,
                probe=bank.ask if repeat is Repeat.ASK_FIRST else None,
                settle=timedelta(0),
            )
        except OperationInProgress:
            return None
        except OutcomeUnknown:
            return True

    first = await until(ask, within=60, what="the end of the lease")
    assert await ask() == first
    operation = operation_key(("", "refund", key))
    calls, effects, questions = [await bank.count(what, operation) for what in ("call", "effect", "question")]
    return first is True, calls, effects, questions


async def test_the_middleware(database: Database, database_url: str) -> None:
    jobs = [{"kind": "http", "at": at} for at in POSITIONS]

    async def post(client: httpx.AsyncClient, at: str) -> httpx.Response:
        body = {"amount": 1, "how": at}
        return await client.post("/payments", json=body, headers={"Idempotency-Key": f'"{at}"'})

    async with crashing(database_url, jobs) as (ports, process):
        for at, port in zip(POSITIONS, ports, strict=True):
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
                with pytest.raises(httpx.TransportError):
                    await post(client, at)
        assert await ended(process) == [KILLED] * 3
    async with keyed(database_url) as shop:
        found = {}
        for at in POSITIONS:

            async def settled(at: str = at) -> httpx.Response | None:
                answer = await post(shop.client, at)
                return None if answer.json().get("code") == "MP461" else answer

            answer = await until(settled, within=60, what="the end of the lease")
            found[at] = (answer.status_code, answer.json().get("code"), await shop.bank.count("effect", at))
        assert found == {"before": (409, "MP462", 0), "after": (409, "MP462", 1), "record": (201, None, 1)}
        assert answer.headers["idempotency-replayed"] == "true"


async def test_the_work_on_webhooks(database_url: str) -> None:
    async with hooks(database_url) as carrier:
        for at in POSITIONS:
            carrier.service.webhook(at, **_as_the_carrier(carrier.service))
            await carrier.send(at)
            await carrier.pool.execute("UPDATE milepost.webhook SET provider = event_id")
        async with crashing(database_url, [{"kind": "webhook", "at": at} for at in POSITIONS]) as (
            _,
            process,
        ):
            assert await ended(process) == [KILLED] * 3
        assert sorted(await carrier.states()) == ["PROCESSED", "PROCESSING", "PROCESSING"]
        assert await carrier.published() == ["p-record"]

        async def done() -> bool:
            await carrier.work.turn()
            return set(await carrier.states()) == {"PROCESSED"}

        await until(done, within=60, what="the end of the leases")
        assert sorted(await carrier.published()) == [f"p-{at}" for at in ("after", "before", "record")]


def _as_the_carrier(service: Milepost) -> dict[str, Any]:
    known = service.webhooks["carrier"]
    return {"verify": known.verify, "event_id": known.event_id, "to_event": known.to_event}
