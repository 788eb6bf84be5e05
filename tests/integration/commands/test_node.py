"""A participant in another language, without a library of ours: command, effect, reply, and one trace through all."""

from __future__ import annotations

import asyncio
import os
import sys
from uuid import UUID

from milepost import Command, send
from milepost.examples.trucks.contracts import TruckBooked, TruckCancelled
from milepost.examples.trucks.service import TABLE
from milepost.schemas.ids import SystemIds
from milepost.streams.tracing import current_traceparent, span

from tests.support.house import ROOT
from tests.support.node import participating
from tests.support.outbox import connected, make_topics
from tests.support.process import served
from tests.support.waiting import until

#: Step, direction, outcome and detail of what the shop has heard.
HEARD = "SELECT step, direction, outcome, detail FROM truck WHERE run = $1 ORDER BY step, direction"


async def asked_by_the_example(env: dict[str, str]) -> list[str]:
    """Run the example's own requester; returns what it prints."""
    path = os.pathsep.join(part for part in [os.environ.get("PYTHONPATH", ""), str(ROOT)] if part)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "milepost.examples.trucks.ask",
        env={**os.environ, **env, "PYTHONPATH": path},
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(90):
        said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()
    return said.decode().splitlines()


async def test_a_node_participant_answers_over_kafka(
    database_url: str, kafka: str, topic_prefix: str
) -> None:
    commands, replies = f"{topic_prefix}trucks", f"{topic_prefix}truck-replies"

    class Book(Command[TruckBooked], type="truck.book", topic=commands, key="truck"):
        truck: str

    class Cancel(Command[TruckCancelled], type="truck.cancel", topic=commands, key="truck"):
        truck: str

    await make_topics(kafka, commands, replies, partitions=1)
    env = {
        "MILEPOST_DATABASE_URL": database_url,
        "MILEPOST_KAFKA": kafka,
        "MILEPOST_APP": "milepost.examples.trucks.service:service",
        "TRUCKS_PREFIX": topic_prefix,
    }
    run = str(SystemIds().new())
    async with connected(database_url) as (connection,):
        await connection.execute(TABLE)

        async def ask(
            command: Command[TruckBooked] | Command[TruckCancelled], step: str, **more: int
        ) -> UUID:
            undo = isinstance(command, Cancel)
            async with connection.transaction():
                return await send(
                    connection,
                    command,
                    run=run,
                    step=step,
                    undo=undo,
                    reply_to=replies,
                    attempt=more.get("n", 1),
                )

        async with (
            participating(kafka, commands, f"{topic_prefix}-company") as node,
            served(env, "relay,consumers"),
        ):
            with span("POST /orders"):
                trace = (current_traceparent() or "").split("-")[1]
                first = await ask(Book(truck="a"), "1-kept")
                await ask(Book(truck="a"), "1-kept", n=2)
                await ask(Book(truck="no-b"), "2-refused")
                await ask(Book(truck="c"), "3-undone")
                await ask(Cancel(truck="c"), "3-undone")
                await ask(Cancel(truck="d"), "4-late")
                await ask(Book(truck="d"), "4-late")

            async def all_heard() -> bool:
                done = len([line for line in node.lines if line.startswith("truck.")]) == 7
                return done and len(await connection.fetch(HEARD, run)) == 6

            await until(all_heard, within=60, what="seven answers, six of them new")
            heard = [tuple(row) for row in await connection.fetch(HEARD, run)]
            correlation = await connection.fetchval("SELECT correlation FROM truck WHERE step = '1-kept'")
            traces = await connection.fetch(
                "SELECT DISTINCT split_part(traceparent, '-', 2) AS id FROM truck"
            )
            told = await asked_by_the_example(env)
    assert heard == [
        ("1-kept", "do", "done", "N-a"),
        ("2-refused", "do", "refused", "NO_TRUCK"),
        ("3-undone", "do", "done", "N-c"),
        ("3-undone", "undo", "done", "c"),
        ("4-late", "do", "refused", "UNDONE_BEFORE"),
        ("4-late", "undo", "nothing-to-undo", ""),
    ]
    assert correlation == str(first)
    assert [row["id"] for row in traces] == [trace]
    said = [line for line in node.lines if line.startswith("truck.")]
    assert said[6].endswith("booked: 1"), "a is booked, c was given back, d never was"
    assert sorted(" ".join(line.split()) for line in told) == [
        "kept do done N-a",
        "late do refused UNDONE_BEFORE",
        "late undo nothing-to-undo",
        "refused do refused NO_TRUCK",
        "undone do done N-c",
        "undone undo done c",
    ]
