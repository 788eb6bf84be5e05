"""A fan-out of many items that do nothing, by one `milepost serve`: python -m tests.benchmarks.fanning 100000 200.

No figure of its own; docs/performance.md has what it printed: items a second by tenth, so that one sees whether the
last cost more than the first, how often the row of the run was written, and how much memory the process took.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import asyncpg
import psutil
from milepost import Context, Milepost, Repeat, Saga
from pydantic import BaseModel
from rich.console import Console
from rich.table import Table

from tests.support import servers
from tests.support.engine import settings_for
from tests.support.process import served
from tests.support.waiting import until

from .harness import cpu_seconds

PREFIX = os.environ.get("FANNING_PREFIX", "fanning")
ENDED = "SELECT succeeded + failed FROM milepost.fanout WHERE run_id = $1"
UPDATES = "SELECT version FROM milepost.run WHERE id = $1"


class Item(BaseModel):
    """Input of an item, with a text as long as an address."""

    name: str
    text: str = "x" * 200


class Batch(BaseModel):
    """Input of the run."""

    items: int


item = Saga("item", version=1, input=Item, key=lambda given: given.name)


@item.step(repeat=Repeat.SAFE)
async def do(ctx: Context[Item]) -> None:
    """Do nothing."""


item.flow(do)
batch = Saga("batch", version=1, input=Batch, key=lambda given: str(given.items))


async def items(ctx: Context[Batch]) -> AsyncIterator[Item]:
    """List them."""
    for n in range(ctx.input.items):
        yield Item(name=f"{ctx.input.items}-{n}")


batch.flow(batch.each("spread", item, items=items, concurrency=int(os.environ.get("FANNING_AT_ONCE", "200"))))
service = Milepost(PREFIX, sagas=[batch, item])


async def measure(url: str, kafka: str, amount: int, at_once: int) -> list[tuple[str, str]]:
    """Drive one fan-out to its end."""
    prefix = f"f{secrets.token_hex(4)}"
    env = {
        "MILEPOST_APP": "tests.benchmarks.fanning:service",
        "MILEPOST_DATABASE_URL": url,
        "MILEPOST_KAFKA": kafka,
        "MILEPOST_CREATE_TOPICS": "true",
        "FANNING_PREFIX": prefix,
        "FANNING_AT_ONCE": str(at_once),
    }
    pool = await asyncpg.create_pool(url, min_size=1, max_size=2)
    told: list[tuple[str, str]] = []
    async with served(env) as (process,):
        memory = psutil.Process(process.pid)
        idle = most = memory.memory_info().rss
        own = Milepost(prefix, sagas=[batch, item], settings=settings_for(url))
        async with pool.acquire() as connection, connection.transaction():
            run = await own.start(connection, batch, Batch(items=amount))
        began = before = time.monotonic()

        async def reached(part: int) -> Any:
            nonlocal most
            most = max(most, memory.memory_info().rss)
            done = await pool.fetchval(ENDED, run.id)
            return done is not None and done >= part and str(done)

        await until(partial(reached, 0), within=300, what="the list")
        told.append(("list read and stored, s", f"{time.monotonic() - began:.1f}"))
        for tenth in range(1, 11):
            before, used = time.monotonic(), cpu_seconds(process.pid)
            await until(partial(reached, amount * tenth // 10), within=3600, what="items")
            rate = amount / 10 / (time.monotonic() - before)
            spent = (cpu_seconds(process.pid) - used) * 10_000 / amount
            told.append((f"tenth {tenth}: items/s, ms of the process each", f"{rate:.0f}, {spent:.2f}"))
        told.append(("all: items/s", f"{amount / (time.monotonic() - began):.0f}"))

        async def over() -> bool:
            state = await pool.fetchval("SELECT state FROM milepost.run WHERE id = $1", run.id)
            return bool(state == "SUCCEEDED")

        await until(over, within=60, what="the end")
        told.append(("writes of the run's row", str(await pool.fetchval(UPDATES, run.id))))
        told.append(("memory, MB: idle, most", f"{idle / 1e6:.0f}, {most / 1e6:.0f}"))
    await pool.close()
    return told


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("items", type=int)
    parser.add_argument("at_once", type=int, nargs="?", default=200)
    given = parser.parse_args()
    with servers.postgres() as database, servers.kafka() as broker:
        with (
            servers.migrated_template(database) as template,
            servers.fresh_database(database, template) as url,
        ):
            told = asyncio.run(measure(url, broker.bootstrap, given.items, given.at_once))
    table = Table(title=f"{given.items:,} items, {given.at_once} at once", title_justify="left")
    table.add_column("")
    table.add_column("", justify="right")
    for row in told:
        table.add_row(*row)
    Console().print(table)


if __name__ == "__main__":
    main()
