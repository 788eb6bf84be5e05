"""Starting again with a key whose run has been removed: its tombstone answers, and nothing runs twice."""

from __future__ import annotations

import pytest
from milepost import RunRef
from milepost.sagas.facts import Claim, Succeeded
from milepost.sagas.saga import Saga
from milepost.schemas.errors import StateError

from tests.support.engine import Rig, rig, worker_id
from tests.support.sagas import Order, add_step, flow, new_saga


async def start(engine: Rig, saga: Saga[Order], given: Order) -> RunRef:
    async with engine.database.pool.acquire() as connection, connection.transaction():
        return await engine.service.start(connection, saga, given)


async def test_the_same_key_after_retention(database_url: str) -> None:
    v1, v2 = new_saga(), new_saga(version=2)
    for saga in (v1, v2):
        add_step(saga, "a")
        flow(saga)
    async with rig(database_url, v1, v2) as engine:
        run = await start(engine, v1, Order(id="o-1"))
        claim = await engine.engine.change(run.id, Claim("a", worker_id()))
        assert claim is not None and claim.decision.claimed is not None
        await engine.engine.change(run.id, Succeeded("a", claim.decision.claimed.fence, {"id": "x"}))
        pool = engine.database.pool
        for table, column in (("step", "run_id"), ("history", "run_id"), ("run", "id")):
            await pool.execute(f"DELETE FROM milepost.{table} WHERE {column} = $1", run.id)
        assert (await start(engine, v1, Order(id="o-1"))).id == run.id
        assert (await start(engine, v2, Order(id="o-1"))).id == run.id, "whatever version asks"
        assert await pool.fetchval("SELECT count(*) FROM milepost.run") == 0, "nothing runs again"
        await pool.execute("UPDATE milepost.run_key SET input_hash = 'another'")
        with pytest.raises(
            StateError, match=r"MP302 .* already ran \(SUCCEEDED\) with a different input .*stored"
        ):
            await start(engine, v1, Order(id="o-1"))
