"""Asks the truck company for a few trucks and prints what it answers: `python -m milepost.examples.trucks.ask`.

One is booked, one is refused, one is booked and given back, and one is given back before it was ever booked.
"""

from __future__ import annotations

import asyncio
import secrets

from milepost import send

from .contracts import BookTruck, CancelTruck
from .service import TABLE, service

_HEARD = "SELECT step, direction, outcome, detail FROM truck WHERE run = $1 ORDER BY at"
_ANSWERS = 6
_PATIENCE = 60  # seconds


async def main() -> int:
    """Send the commands and wait for the answers; returns the exit status."""
    run = f"order-{secrets.token_hex(8)}"
    async with service.transaction() as tx:
        await tx.connection.execute(TABLE)
        await send(tx, BookTruck(truck="a"), run=run, step="kept")
        await send(tx, BookTruck(truck="no-b"), run=run, step="refused")
        await send(tx, BookTruck(truck="c"), run=run, step="undone")
        await send(tx, CancelTruck(truck="c"), run=run, step="undone", undo=True)
        await send(tx, CancelTruck(truck="d"), run=run, step="late", undo=True)
        await send(tx, BookTruck(truck="d"), run=run, step="late")
    told = 0
    try:
        async with asyncio.timeout(_PATIENCE):
            while told < _ANSWERS:
                async with service.transaction() as tx:
                    rows = await tx.connection.fetch(_HEARD, run)
                for step, direction, outcome, detail in rows[told:]:
                    print(f"{step:8} {direction:4} {outcome} {detail}".rstrip(), flush=True)
                told = len(rows)
                await asyncio.sleep(0.1)
    except TimeoutError:
        print(
            f"{told} of {_ANSWERS} answers after {_PATIENCE} s. Do the relay, the consumers and the company run?"
        )
        return 1
    finally:
        await service.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main()))
