"""dbos, five steps that do nothing: python dbos_flow.py DATABASE_URL; runs in the peers' own environment.

Reads lines from its input: "many COUNT IN_FLIGHT", answered by the seconds that so many flows took, and "one COUNT",
answered by the milliseconds of each of so many flows one after the other; both as JSON. A flow is awaited in this
process, which is the shortest way that dbos has.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time

from dbos import DBOS

STEPS = 5


async def do_nothing(number: int) -> dict[str, int]:
    """Do nothing."""
    return {"value": number}


step = DBOS.step()(do_nothing)


async def five_steps(order: str) -> None:
    """Five steps, one after the other."""
    for number in range(STEPS):
        await step(number)


flow = DBOS.workflow()(five_steps)


async def many(count: int, in_flight: int) -> float:
    """Seconds for so many flows, so many at a time."""
    numbers = iter(range(count))

    async def one_after_another() -> None:
        for number in numbers:
            await flow(f"o-{number}")

    began = time.perf_counter()
    await asyncio.gather(*(one_after_another() for _ in range(in_flight)))
    return time.perf_counter() - began


async def alone(count: int) -> list[float]:
    """Milliseconds of each flow."""
    took = []
    for number in range(count):
        began = time.perf_counter()
        await flow(f"o-{number}")
        took.append((time.perf_counter() - began) * 1000)
    return took


async def main() -> None:
    """Answer lines until there are no more."""
    DBOS.launch()
    await many(20, 10)
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        kind, *numbers = line.split()
        answer = await many(*map(int, numbers)) if kind == "many" else await alone(*map(int, numbers))
        print(json.dumps(answer), flush=True)
    DBOS.destroy()


DBOS(
    config={
        "name": "bench",
        "system_database_url": sys.argv[1],
        "run_admin_server": False,
        "log_level": "ERROR",
        "sys_db_pool_size": 20,
    }
)
logging.getLogger("dbos").setLevel(logging.ERROR)
asyncio.run(main())
