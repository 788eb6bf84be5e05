"""What all benchmarks need: servers, topics, rows, processes, and a count of what lies on a topic."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import median
from uuid import UUID

import asyncpg
from aiokafka import AIOKafkaConsumer, TopicPartition
from milepost.consumers.serving import collect_rarely
from milepost.outbox.log import outbox_state
from milepost.schemas.ids import SystemIds

from tests.support.outbox import make_topics
from tests.support.process import Served, served
from tests.support.servers import DatabaseServer, fresh_database
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[2]
PARTITIONS, KEYS, VALUE = 4, 997, b"x" * 500
LEASE = 2.0
IDS = SystemIds()

#: Rows as `publish` writes them: an id, a time and a trace of their own, the rest alike. $3 is the number of rows.
FILL = (
    "INSERT INTO milepost.outbox (id, topic, aggregatetype, aggregateid, type, payload, headers)"
    " SELECT id, $1, $1, 'key-' || n % 997, 'shop.order-placed', $2, jsonb_build_object("
    " 'ce_id', id, 'ce_time', '2026-11-29T20:03:17.130320+00:00', 'ce_type', 'shop.order-placed',"
    " 'ce_source', 'shop', 'ce_specversion', '1.0', 'ce_eventversion', '1', 'content-type', 'application/json',"
    " 'traceparent', '00-' || md5(n::text) || '-' || left(md5(id::text), 16) || '-01')"
    " FROM (SELECT n, gen_random_uuid() AS id FROM generate_series(1, $3::int) AS n) AS made"
)


def headers(event_id: UUID | str) -> dict[str, str]:
    """Headers like those of `FILL`."""
    return {
        "ce_id": str(event_id),
        "ce_time": "2026-11-29T20:03:17.130320+00:00",
        "ce_type": "shop.order-placed",
        "ce_source": "shop",
        "traceparent": f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01",
        "content-type": "application/json",
        "ce_specversion": "1.0",
        "ce_eventversion": "1",
    }


@dataclass
class Sizes:
    """How much is done; `make bench` takes these, smaller ones are for a look.

    Attributes:
        rounds: Rounds of each figure; the median is judged.
        records: Rows of a relay drain.
        retained: Rows that G1 keeps beside.
    """

    rounds: int = 5
    records: int = 100_000
    retained: int = 2_000_000

    def part(self, share: float) -> int:
        """A share of `records`, for variants that are slower."""
        return max(100, int(self.records * share))


@dataclass
class Bench:
    """One run.

    Attributes:
        say: Told what is being measured.
        figures: Values by figure and round.
        rates: What the figures were made of, by variant and round.
        notes: Versions of peers and the like.
    """

    server: DatabaseServer
    template: str
    url: str
    kafka: str
    connection: asyncpg.Connection
    consumer: AIOKafkaConsumer
    sizes: Sizes
    say: Callable[[str], None]
    figures: dict[str, list[float]] = field(default_factory=dict)
    rates: dict[str, list[float]] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    def rate(self, name: str, value: float) -> float:
        """Note what a variant did."""
        self.rates.setdefault(name, []).append(value)
        return value

    def figure(self, name: str, value: float) -> None:
        """Note a round of a figure."""
        self.figures.setdefault(name, []).append(value)

    async def topic(self, partitions: int = PARTITIONS) -> str:
        """Make a topic of a round's own."""
        name = f"bench{secrets.token_hex(6)}"
        await make_topics(self.kafka, name, partitions=partitions)
        return name

    async def on_topic(self, topic: str, partitions: int = PARTITIONS) -> int:
        """Records that lie on a topic."""
        ends = await self.consumer.end_offsets([TopicPartition(topic, n) for n in range(partitions)])
        return sum(ends.values())

    async def until_on_topic(self, topic: str, count: int, within: float = 120.0) -> None:
        """Wait until so many records lie on a topic; a look costs a millisecond and comes every ten or more."""
        deadline = time.monotonic() + within
        while (found := await self.on_topic(topic)) < count:
            assert time.monotonic() < deadline, f"{found} of {count} arrived in {within:g} s"
            await asyncio.sleep(0.01)

    @cached_property
    def server_pid(self) -> int:
        """Process id of the server, which is the parent of each of its connections."""
        fields = Path(f"/proc/{self.connection.get_server_pid()}/stat").read_text().rpartition(")")[2].split()
        return int(fields[1])

    @asynccontextmanager
    async def database(self) -> AsyncIterator[str]:
        """Give a database of its own, for what would disturb the others."""
        with fresh_database(self.server, self.template) as url:
            yield url

    @asynccontextmanager
    async def relay(self, url: str = "", count: int = 1, **env: str) -> AsyncIterator[list[Served]]:
        """Run `milepost serve --roles relay` in processes of their own; one of them leads from the beginning."""
        given = environment(url or self.url, self.kafka, **env)
        async with served(given, *["relay"] * count, ready=60.0) as processes:
            connection = await asyncpg.connect(url or self.url)
            try:

                async def led() -> bool:
                    return (await outbox_state(connection)).owner is not None

                await until(led, within=30, every=0.02, what="a relay to lead")
            finally:
                await connection.close()
            yield processes
            for process in processes:
                if not process.ended:
                    await process.stop()

    async def empty(self, *tables: str) -> None:
        """Empty tables, and let the server write down what it still has to."""
        await self.connection.execute(f"TRUNCATE {', '.join(tables)}")
        await self.connection.execute("CHECKPOINT")
        gc.collect()


def environment(url: str, kafka: str, **more: str) -> dict[str, str]:
    """Variables of a `milepost serve` of the benchmark's own service."""
    return {
        "MILEPOST_APP": "tests.benchmarks.service:service",
        "MILEPOST_DATABASE_URL": url,
        "MILEPOST_KAFKA": kafka,
        "MILEPOST_LEASE": f"{LEASE:g}s",
        "MILEPOST_LOG": "error",
        **more,
    }


@contextmanager
def as_served() -> Iterator[None]:
    """Let Python's collector be as `milepost serve` sets it; raw clients run as Python comes."""
    before = gc.get_threshold()
    collect_rarely()
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


async def commit_rows(
    connection: asyncpg.Connection, topic: str, count: int, pid: int = 0
) -> tuple[float, float]:
    """Insert rows in one transaction and commit it.

    Returns:
        The instant of the commit (`time.perf_counter`), and the processor time that process `pid` had used by then.
    """
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute(FILL, topic, VALUE, count)
    used = cpu_seconds(pid) if pid else 0.0
    await transaction.commit()
    return time.perf_counter(), used


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has used (proc(5), fields utime and stime)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def server_seconds(pid: int) -> float:
    """Processor time that a server and its children have used, those that have ended included (proc(5))."""
    ticks = 0
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended meanwhile, and counts with those that have
        if int(folder.name) == pid:
            ticks += sum(map(int, fields[11:15]))
        elif int(fields[1]) == pid:
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def resident_mb(pid: int) -> float:
    """Most memory that a process has had resident, in MB (proc(5), VmHWM)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no VmHWM")


def percentile(values: list[float], share: float) -> float:
    """The value below which a share of all lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def written(path: Path, bench: Bench, figures: Mapping[str, object]) -> None:
    """Write figures, and beside them the rates they were made of; figures of earlier runs stay when not measured."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(figures, indent=2) + "\n")
    rates = {
        name: {"median": median(values), "rounds": values} for name, values in sorted(bench.rates.items())
    }
    aside = path.with_name("bench-rates.json")
    aside.write_text(
        json.dumps({"notes": bench.notes, "sizes": vars(bench.sizes), "rates": rates}, indent=2) + "\n"
    )
