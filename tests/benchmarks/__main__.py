"""`make bench`: every figure of docs/performance.md, in one run, with its raw baselines and peers.

Variants take turns, at least five rounds; what is judged is the median of the rounds' ratios, because rates drift
between machines and hours and ratios in one run do not. Writes build/bench.json and build/bench-rates.json.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

import asyncpg
from aiokafka import AIOKafkaConsumer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.support import servers

from .figures import FIGURES, judged
from .harness import ROOT, Bench, Sizes, written

#: Modules by the figures that they measure.
GROUPS: Mapping[str, Sequence[str]] = {
    "drains": ("R1", "R2", "R3", "R4"),
    "peers": ("R8", "R8.cpu", "R8.rss"),
    "live": ("R5", "R6", "R6.p99", "R7"),
    "failing": ("R0", "R0.repeated", "R9"),
    "inboxes": ("I1", "I2", "I3"),
    "timers": ("T1", "T1.p99"),
    "sagas": ("S1", "S2", "S3", "S4", "S4.p99"),
    "growth": ("G1",),
}


def chosen(only: str) -> list[str]:
    """Return the groups that measure the figures named, comma-separated; all when none is.

    Raises:
        SystemExit: There is no such figure.
    """
    wanted = {name.strip().upper() for name in only.split(",") if name.strip()}
    known = {figure.partition(".")[0] for figure in FIGURES}
    if not wanted <= known:
        raise SystemExit(
            f"no figure {', '.join(sorted(wanted - known))}; there are: {', '.join(sorted(known))}"
        )
    return [
        group
        for group, figures in GROUPS.items()
        if not wanted or wanted & {figure.partition(".")[0] for figure in figures}
    ]


async def run(
    groups: Sequence[str], sizes: Sizes, server: servers.DatabaseServer, kafka: str, console: Console
) -> Bench:
    """Run groups one after another, each in turns."""
    with servers.migrated_template(server) as template, servers.fresh_database(server, template) as url:
        connection, consumer = await asyncpg.connect(url), AIOKafkaConsumer(bootstrap_servers=kafka)
        await consumer.start()
        columns = (TextColumn("{task.description:<36}"), BarColumn(), TimeElapsedColumn())
        try:
            with Progress(*columns, console=console, transient=console.is_terminal) as progress:
                task = progress.add_task("", total=len(groups))

                def say(what: str) -> None:
                    progress.update(task, description=what)
                    if not console.is_terminal:
                        console.print(f"{time.strftime('%H:%M:%S')} {what}")

                bench = Bench(server, template, url, kafka, connection, consumer, sizes, say)
                bench.notes["PostgreSQL"] = await connection.fetchval("SHOW server_version")
                for group in groups:
                    await importlib.import_module(f"tests.benchmarks.{group}").measure(bench)
                    progress.advance(task)
        finally:
            await consumer.stop()
            await connection.close()
    return bench


def show(found: Mapping[str, Mapping[str, Any]], bench: Bench, console: Console) -> None:
    """Print the figures, and the rates that they were made of."""
    table = Table(title=f"medians of {bench.sizes.rounds} rounds", title_justify="left", pad_edge=False)
    for column in ("id", "what", "median", "floor", "stretch", ""):
        table.add_column(column, justify="right" if column in ("median", "floor", "stretch") else "left")
    for name, entry in found.items():
        word = "stretch" if entry["stretched"] else "floor" if entry["holds"] else "BELOW"
        numbers = (f"{entry[key]:.3g}" for key in ("median", "floor", "stretch"))
        table.add_row(name, entry["what"], *numbers, word)
    console.print(table)
    for name, entry in found.items():
        if not entry["stretched"]:
            console.print(f"{name}, missing for the stretch: {FIGURES[name].missing or 'not known'}")
    rates = Table(title="what they were made of", title_justify="left")
    for column in ("variant", "median", "min", "max"):
        rates.add_column(column, justify="left" if column == "variant" else "right")
    for name, values in bench.rates.items():
        middle = sorted(values)[len(values) // 2]
        rates.add_row(
            name,
            *(
                f"{value:,.4g}" if value < 1000 else f"{value:,.0f}"
                for value in (middle, min(values), max(values))
            ),
        )
    console.print(rates)


def main() -> None:
    """Parse arguments, run, print, write."""
    parser = argparse.ArgumentParser(prog="tests.benchmarks", description=__doc__)
    parser.add_argument("--only", default="", help="figures, comma-separated; all when empty")
    parser.add_argument("--rounds", type=int, default=Sizes.rounds)
    parser.add_argument(
        "--records", type=int, default=int(os.environ.get("MILEPOST_BENCH_RECORDS", Sizes.records))
    )
    parser.add_argument("--retained", type=int, default=Sizes.retained, help="rows that G1 keeps")
    parser.add_argument("--full", action="store_true", help="10,000,000 retained rows")
    options = parser.parse_args()
    sizes = Sizes(options.rounds, options.records, 10_000_000 if options.full else options.retained)
    console = Console()
    with servers.postgres() as database, servers.kafka() as broker:
        bench = asyncio.run(run(chosen(options.only), sizes, database, broker.bootstrap, console))
    found = judged(bench.figures)
    show(found, bench, console)
    path = ROOT / "build" / "bench.json"
    written(path, bench, found)
    console.print(
        f"written: {path.relative_to(ROOT)}, {path.with_name('bench-rates.json').relative_to(ROOT)}"
    )
    below = [name for name, entry in found.items() if not entry["holds"]]
    if below:
        console.print(f"below their floor: {', '.join(below)}")
        raise SystemExit(1)


if __name__ == "__main__":
    main()
