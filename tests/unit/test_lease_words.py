"""What a process says when its lease cannot be renewed."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, cast

import pytest
from milepost.consumers.lease import Lease
from milepost.schemas.ids import SystemClock, SystemIds


class Slow:
    """A pool with a database that does not answer."""

    def acquire(self) -> Slow:
        return self

    async def __aenter__(self) -> None:
        await asyncio.sleep(60)

    async def __aexit__(self, *_: object) -> None: ...


async def test_a_database_that_does_not_answer_is_said_in_words(caplog: pytest.LogCaptureFixture) -> None:
    lease = Lease(
        cast(Any, Slow()),
        SystemClock(),
        SystemIds(),
        timedelta(seconds=3),
        service="shop",
        process="p",
        roles=(),
        queues=(),
        definitions=(),
        pins=(),
    )
    await lease._keep(0.01)
    (said,) = caplog.messages
    assert said == (
        "lease of this process not renewed: TimeoutError: the database did not answer within 0.01 s"
    )
