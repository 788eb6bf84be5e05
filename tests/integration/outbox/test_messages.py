"""A service's own messages do not depend on what milepost.topic says about the topics of events."""

from __future__ import annotations

from uuid import UUID

import pytest
from milepost import Context, Repeat, Saga
from milepost.outbox.model import event_row, message_row
from milepost.outbox.publish import publish_rows
from milepost.schemas.errors import UsageError
from milepost.schemas.messages import TimerMessage
from pydantic import BaseModel

from tests.support.engine import rig
from tests.support.outbox import CLOCK, IDS, Noted, connected

#: What the relay may have written: one topic takes a byte, two were looked for and not found.
TOPICS = (
    "INSERT INTO milepost.topic (name, compacted, max_bytes, missing)"
    " VALUES ('rig.timers', false, NULL, true), ('own', true, 1, false), ('noted', false, NULL, true)"
)


class Order(BaseModel):
    id: str


def saga() -> Saga[Order]:
    made = Saga("order", version=1, input=Order, key=lambda order: order.id)

    @made.step(repeat=Repeat.SAFE, no_undo="the only one")
    async def only(ctx: Context[Order]) -> None:
        return None

    made.flow(only)
    return made


async def test_they_go_to_topics_that_are_not_listed_or_are_limited(database_url: str) -> None:
    rows = [
        message_row(
            TimerMessage(run=UUID(int=1), step=None, generation=0),
            topic=topic,
            key="k",
            ids=IDS,
            clock=CLOCK,
            tenant="",
            service="rig",
            correlation_id=None,
            traceparent=None,
        )
        for topic in ("rig.timers", "own")
    ]
    stranger = event_row(Noted(key="k"), ids=IDS, clock=CLOCK)
    async with connected(database_url) as (connection,):
        await connection.execute(TOPICS)
        async with connection.transaction():
            await publish_rows(connection, rows)
            with pytest.raises(UsageError, match=r"MP313.*noted"):
                await publish_rows(connection, [*rows, stranger])
        assert await connection.fetchval("SELECT count(*) FROM milepost.outbox") == 2


async def test_runs_start_and_are_woken(database_url: str) -> None:
    order = saga()
    async with rig(database_url, order) as it:
        await it.database.pool.execute(TOPICS)
        await it.start(order, Order(id="o-1"))
        started = len(await it.outgoing("milepost.work"))
        assert started, "its first step was announced"
        await it.clock("1 hour")
        assert await it.waker.tick() > 0
        assert await it.outgoing("milepost.timer")
