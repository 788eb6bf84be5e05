"""What a run has published stands on its page, with what became of it."""

from __future__ import annotations

from typing import Any, cast

import asyncpg
from milepost import Context, Event, Milepost, RunState, Saga, Transaction
from milepost.console.views.run import run_view
from milepost.recovery.permissions import EVERYTHING, Role
from milepost.testing import open_kit

from tests.support.two_sagas import Order, actor

SENT = (
    "INSERT INTO milepost.outbox_position (outbox, epoch, n, previous, current, last_seq, system_identifier)"
    " SELECT 'outbox', 9, 9, pg_current_snapshot(), pg_current_snapshot(), 0, 0"
)


class Packed(Event, type="published.packed", topic="published-packed", key="id"):
    id: str


async def test_a_run_shows_what_it_has_published_and_whether_it_was_sent() -> None:
    saga = Saga("packing", version=1, input=Order, key=lambda order: order.id)

    @saga.tx_step()
    async def pack(ctx: Context[Order], tx: Transaction) -> None:
        await tx.publish(Packed(id=ctx.input.id))

    saga.flow(pack)
    async with open_kit(Milepost("packer", sagas=[saga])) as kit:
        runs = [await kit.start(saga, Order(id=f"o-{n}")) for n in range(3)]
        for run in runs:
            await kit.until(run, RunState.SUCCEEDED)
        async with kit._opened.database.pool.acquire() as lent:
            connection = cast("asyncpg.Connection[Any]", lent)

            async def published() -> list[tuple[str, str, bool]]:
                view = await run_view(connection, EVERYTHING, runs[1].id, actor=actor("ann", Role.VIEWER))
                assert view is not None
                return [(one["type"], one["key"], one["sent"]) for one in view.published]

            await connection.execute("DELETE FROM milepost.outbox_position")
            assert await published() == [("published.packed", "o-1", False)]
            await connection.execute(SENT)
            assert await published() == [("published.packed", "o-1", True)]
