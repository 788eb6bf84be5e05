"""A participant in a process of its own: handles the truck commands that it is given, and is killed where it is told.

Its argument says where: "effect" (written, not committed), "reply" (written too), "commit" (committed, nobody told) or
"never". Standard input is a JSON list of records: key, offset, headers, value.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import Any

from milepost import Command, Consumer, Settings, Transaction
from milepost.consumers.answering import write_reply
from milepost.consumers.publishing import publish_in
from milepost.inbox.intake import Intake
from milepost.schemas.commands import Reply
from milepost.schemas.envelope import Record
from milepost.schemas.ids import SystemClock
from milepost.streams.database import Database

from tests.support.trucks import BookTruck, CancelTruck, Participant, TruckBooked, TruckCancelled


def die() -> None:
    """End this process as a crash does."""
    os.kill(os.getpid(), signal.SIGKILL)


async def main(where: str) -> None:
    """Handle one batch."""

    async def pause(command: Command[Any], tx: Transaction) -> None:
        if where == "effect":
            die()

    async def write(*args: Any, **more: Any) -> Reply:
        reply = await write_reply(*args, **more)
        if where == "reply":
            die()
        return reply

    participant = Participant(pause=pause)
    consumer = Consumer("trucks", reply=write)
    consumer.answers(BookTruck, TruckBooked)(participant.book)
    consumer.answers(CancelTruck, TruckCancelled, undoes=BookTruck)(participant.cancel)
    database = Database(Settings.from_env())
    await database.open()
    records = [
        Record(
            "trucks",
            0,
            given["offset"],
            given["key"].encode(),
            given["value"].encode(),
            [(name, text.encode()) for name, text in given["headers"]],
            given["at_ms"],
        )
        for given in json.load(sys.stdin)
    ]
    await Intake(consumer, database, publish_in, clock=SystemClock()).handle(records)
    if where == "commit":
        die()
    await database.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
