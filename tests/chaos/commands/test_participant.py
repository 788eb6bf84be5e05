"""A participant is killed at each position; its effect and its reply are both there, once, or neither is."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence

import pytest
from milepost.schemas.envelope import Record

from tests.support.house import ROOT
from tests.support.trucks import BookTruck, CancelTruck, bench, outcomes


async def handled(url: str, where: str, records: Sequence[Record]) -> int:
    """Give records to a participant in a process of its own, which dies at `where`; returns its exit code."""
    given = [
        {
            "key": (record.key or b"").decode(),
            "offset": record.offset,
            "headers": [(name, (value or b"").decode()) for name, value in record.headers],
            "value": (record.value or b"").decode(),
            "at_ms": record.timestamp_ms,
        }
        for record in records
    ]
    path = os.pathsep.join(part for part in [os.environ.get("PYTHONPATH", ""), str(ROOT)] if part)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.support.apps.truck_process",
        where,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, "MILEPOST_DATABASE_URL": url},
        stdin=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        _, words = await process.communicate(json.dumps(given).encode())
    assert process.returncode in {0, -signal.SIGKILL}, words.decode()
    return process.returncode


@pytest.mark.parametrize("where", ["reply", "commit"])
async def test_a_kill_around_a_commands_effect_never_loses_or_repeats_it(
    database_url: str, where: str
) -> None:
    async with bench(database_url) as at:
        operation = {"run": "r", "step": "s"}
        do = at.record(BookTruck(truck="a"), of=operation, attempt="1")
        again = at.record(BookTruck(truck="a"), of=operation, attempt="2")
        undo = at.record(CancelTruck(truck="a"), of=operation, direction="undo")
        left = 1 if where == "commit" else 0

        assert await handled(database_url, where, [do]) == -signal.SIGKILL
        assert len(await at.ledger()) == len(await at.replies()) == left, "both or neither"
        # The group's offset was not committed, so the record comes again; meanwhile the requester asked again.
        assert await handled(database_url, "never", [do, again]) == 0
        assert await at.ledger() == [("do", "a")]
        assert outcomes(await at.replies()) == ["truck.booked done"] * 2

        assert await handled(database_url, where, [undo]) == -signal.SIGKILL
        assert len(await at.ledger()) == 1 + left
        assert await handled(database_url, "never", [undo, do]) == 0
        assert await at.ledger() == [("do", "a"), ("undo", "a")]
        assert outcomes(await at.replies()) == ["truck.booked done"] * 2 + ["truck.cancelled done"]
        assert len({reply.id for reply in await at.replies()}) == 2
        assert await at.letters() == []
