"""Requests of persons that are carried out as a serving process does, in the test's own process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from milepost.consumers.carrying import Carrier

from tests.support.engine import Rig


@asynccontextmanager
async def carrying(it: Rig) -> AsyncIterator[None]:
    """Carry out what is asked for while the block lasts."""
    task = asyncio.create_task(_carry(it))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _carry(it: Rig) -> None:
    carrier = Carrier(it.engine, max_result_bytes=1000)
    while True:
        await carrier.turn()
        await asyncio.sleep(0.02)
