"""R8: the relay beside txoutbox and faststream-outbox, each in a process of its own, with their own tables.

The peers live in an environment of their own, build/peers, made once from peer/requirements.lock. They get the same
keys, bodies and headers; the clock runs as for the relay, from the commit of the backlog to the last record on the
topic. Rows are fewer for the slower ones; a rate per second is compared.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg

from .drains import drain
from .harness import ROOT, VALUE, Bench, cpu_seconds, resident_mb

HERE = Path(__file__).resolve().parent / "peer"
PEERS = ROOT / "build" / "peers"
_HEADERS = (
    "jsonb_build_object('ce_id', gen_random_uuid(), 'ce_time', '2026-11-29T20:03:17.130320+00:00',"
    " 'ce_type', 'shop.order-placed', 'ce_source', 'shop', 'ce_specversion', '1.0', 'ce_eventversion', '1',"
    " 'content-type', 'application/octet-stream', 'traceparent', '00-' || md5(n::text) || '-00f067aa0ba902b7-01')"
)
#: Script, share of the relay's rows, and how its rows are inserted ($1 topic, $2 body, $3 number).
KINDS = {
    "txoutbox": (
        "txoutbox_relay.py",
        0.1,
        f"INSERT INTO outbox (topic, key, payload, headers) SELECT $1, 'key-' || n % 997, $2, {_HEADERS}"
        " FROM generate_series(1, $3::int) AS n",
    ),
    "faststream-outbox": (
        "faststream_relay.py",
        0.05,
        f"INSERT INTO outbox (queue, payload, headers) SELECT 'bench', $2, {_HEADERS}"
        " || jsonb_build_object('topic', $1::text, 'key', 'key-' || n % 997) FROM generate_series(1, $3::int) AS n",
    ),
}


def installed() -> Path:
    """Return the Python of the peers' environment, which is made when it is missing or its lock has changed."""
    lock, mark, python = HERE / "requirements.lock", PEERS / "made-from", PEERS / "bin" / "python"
    wanted = lock.read_text()
    if not mark.exists() or mark.read_text() != wanted:
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(PEERS)], check=True)
        install = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        subprocess.run([*install, "--require-hashes", "--no-deps", "-r", str(lock)], check=True)
        mark.write_text(wanted)
    return python


def version(python: Path, package: str) -> str:
    """Return the installed version of a package."""
    command = [str(python), "-c", f"from importlib.metadata import version; print(version('{package}'))"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@asynccontextmanager
async def running(python: Path, script: str, url: str, kafka: str) -> AsyncIterator[int]:
    """Run a peer's relay while the block lasts; gives its process id."""
    command = [str(python), str(HERE / script), url, kafka]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), 60)
        assert line.strip() == b"ready", f"{script} did not start"
        yield process.pid
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def peer_drain(bench: Bench, python: Path, name: str) -> float:
    """Records a second of a peer; notes its processor time per 100,000 and its memory beside."""
    script, share, fill = KINDS[name]
    count, topic = bench.sizes.part(share), await bench.topic()
    async with bench.database() as url, running(python, script, url, bench.kafka) as pid:
        connection = await asyncpg.connect(url)
        try:
            used, loop = cpu_seconds(pid), asyncio.get_running_loop()
            async with connection.transaction():
                await connection.execute(fill, topic, VALUE, count)
            began = loop.time()
            await bench.until_on_topic(topic, count)
            took = loop.time() - began
        finally:
            await connection.close()
        bench.rate(f"{name}, CPU s / 100k", (cpu_seconds(pid) - used) * 100_000 / count)
        bench.rate(f"{name}, MB", resident_mb(pid))
    arrived = await bench.on_topic(topic)
    assert arrived == count, f"{name}: {arrived} of {count} arrived"
    return bench.rate(name, count / took)


async def measure(bench: Bench) -> None:
    """Run all rounds, variants in turns."""
    bench.say("R8 the peers' environment")
    python = await asyncio.to_thread(installed)
    for name in KINDS:
        bench.notes[name] = version(python, name)
    for _ in range(bench.sizes.rounds):
        bench.say("R8 relay drain")
        await bench.empty("milepost.outbox", "milepost.outbox_position")
        topic, name = await bench.topic(), "relay beside peers"
        relay = bench.rate(name, await drain(bench, topic, bench.sizes.records, name=name))
        bench.figure("R8.cpu", bench.rates[f"{name}, CPU s / 100k"][-1])
        bench.figure("R8.rss", bench.rates[f"{name}, MB"][-1])
        for peer in KINDS:
            bench.say(f"R8 {peer}")
            rate = await peer_drain(bench, python, peer)
            if peer == "txoutbox":
                bench.figure("R8", relay / rate)
    await bench.empty("milepost.outbox", "milepost.outbox_position")
