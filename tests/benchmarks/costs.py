"""How the relay's cost grows with the backlog and with the number of keys: python -m tests.benchmarks.costs.

No figure of its own; docs/performance.md has what it printed. Variants take turns, three rounds.
"""

from __future__ import annotations

import asyncio
from statistics import median

import asyncpg
from aiokafka import AIOKafkaConsumer
from rich.console import Console
from rich.table import Table

from tests.support import servers

from .harness import FILL, VALUE, Bench, Sizes, cpu_seconds

#: Rows of the backlog, and distinct keys.
VARIANTS = (
    (20_000, 997),
    (100_000, 997),
    (500_000, 997),
    (100_000, 1),
    (100_000, 20_000),
    (100_000, 100_000),
)


async def drain(bench: Bench, count: int, keys: int) -> None:
    """Note rate and processor time of one variant."""
    await bench.empty("milepost.outbox", "milepost.outbox_position")
    topic = await bench.topic()
    async with bench.relay() as (process,):
        transaction = bench.connection.transaction()
        await transaction.start()
        await bench.connection.execute(FILL.replace("% 997", f"% {keys}"), topic, VALUE, count)
        used = cpu_seconds(process.pid)
        await transaction.commit()
        began = asyncio.get_running_loop().time()
        await bench.until_on_topic(topic, count)
        took = asyncio.get_running_loop().time() - began
        name = f"{count:,} rows, {keys:,} keys"
        bench.rate(f"{name}: records/s", count / took)
        bench.rate(f"{name}: CPU s / 100k", (cpu_seconds(process.pid) - used) * 100_000 / count)


async def run(server: servers.DatabaseServer, template: str, url: str, kafka: str) -> Bench:
    """Run all rounds."""
    connection, consumer = await asyncpg.connect(url), AIOKafkaConsumer(bootstrap_servers=kafka)
    await consumer.start()
    try:
        bench = Bench(server, template, url, kafka, connection, consumer, Sizes(rounds=3), lambda _: None)
        for _ in range(bench.sizes.rounds):
            for count, keys in VARIANTS:
                await drain(bench, count, keys)
        return bench
    finally:
        await consumer.stop()
        await connection.close()


def main() -> None:
    """Measure and print."""
    with servers.postgres() as database, servers.kafka() as broker:
        with (
            servers.migrated_template(database) as template,
            servers.fresh_database(database, template) as url,
        ):
            bench = asyncio.run(run(database, template, url, broker.bootstrap))
    table = Table(title="relay, median of 3", title_justify="left")
    table.add_column("variant")
    table.add_column("", justify="right")
    for name, values in bench.rates.items():
        table.add_row(name, f"{median(values):,.4g}" if median(values) < 1000 else f"{median(values):,.0f}")
    Console().print(table)


if __name__ == "__main__":
    main()
