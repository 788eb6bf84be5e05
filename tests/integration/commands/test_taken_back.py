"""What a participant's function wrote and did to its transaction, with a session and without one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import nullcontext
from typing import Any

import pytest
from milepost import Command, Consumer, Refused, Transaction
from milepost.consumers.answering import write_reply
from milepost.consumers.publishing import publish_in
from milepost.inbox.intake import Intake
from milepost.schemas.ids import SystemClock
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from tests.support.trucks import (
    NOTE,
    Bench,
    BookTruck,
    CancelTruck,
    Participant,
    TruckBooked,
    TruckCancelled,
    bench,
    with_sessions,
)


@pytest.fixture
async def at(database_url: str) -> AsyncIterator[Bench]:
    async with bench(database_url) as found:
        yield found


async def test_a_refusal_takes_back_what_a_session_holds(at: Bench) -> None:
    class Base(DeclarativeBase):
        pass

    class Row(Base):
        __tablename__ = "ledger"
        n: Mapped[int] = mapped_column(primary_key=True)
        act: Mapped[str]
        truck: Mapped[str]

    async def book(command: BookTruck, tx: Transaction) -> TruckBooked:
        tx.session.add(Row(act="do", truck=command.truck))
        if command.truck == "flushed":
            await tx.session.flush()
        if command.truck != "good":
            raise Refused("NO")
        return TruckBooked(truck="good", plate="p")

    consumer = Consumer("trucks", reply=write_reply)
    consumer.answers(BookTruck, TruckBooked)(book)
    async with with_sessions(at) as database:
        intake = Intake(consumer, database, publish_in, clock=SystemClock())
        trucks = ["flushed", "pending", "good"]
        await intake.handle([at.record(BookTruck(truck=truck), run=truck, step="s") for truck in trucks])
    assert await at.ledger() == [("do", "good")]
    assert [reply.outcome for reply in await at.replies()] == ["refused", "refused", "done"]


async def test_a_refusal_takes_back_what_was_published_and_written_beside_the_session(at: Bench) -> None:
    """The session need not have been used for that."""

    async def book(command: BookTruck, tx: Transaction) -> TruckBooked:
        await tx.publish(TruckCancelled(truck=command.truck))
        await tx.connection.execute(NOTE, "do", command.truck)
        if command.truck != "good":
            raise Refused("NO")
        return TruckBooked(truck="good", plate="p")

    consumer = Consumer("trucks", reply=write_reply)
    consumer.answers(BookTruck, TruckBooked)(book)
    async with with_sessions(at) as database:
        intake = Intake(consumer, database, publish_in, clock=SystemClock())
        trucks = ["first", "good", "last"]
        await intake.handle([at.record(BookTruck(truck=truck), run=truck, step="s") for truck in trucks])
    assert await at.ledger() == [("do", "good")]
    sent = await at.database.pool.fetch("SELECT type FROM milepost.outbox ORDER BY seq")
    assert [row["type"] for row in sent] == [
        "truck.book.refused",
        "truck.cancelled",
        "truck.booked",
        "truck.book.refused",
    ]


@pytest.mark.parametrize("session", [False, True])
async def test_a_handler_that_commits_a_batch_leaves_no_operation_half_known(
    at: Bench, session: bool
) -> None:
    """What was done before it is known with its reply, and what comes after it is done once."""
    participant = Participant()

    async def commit(command: Command[Any], tx: Transaction) -> None:
        if command.truck == "rude":  # type: ignore[attr-defined]
            await tx.connection.execute("COMMIT")

    participant.pause = commit
    async with with_sessions(at) if session else nullcontext(at.database) as database:
        intake = Intake(participant.consumer(), database, publish_in, clock=SystemClock())
        names = ("a", "rude", "c")
        await intake.handle([at.record(BookTruck(truck=name), run=name, step="s") for name in names])
        [letter] = await at.letters()
        assert "MP332" in letter["message"]
        again = [at.record(BookTruck(truck=n), run=n, step="s", attempt="2") for n in ("a", "c")]
        await intake.handle(again)
    assert await at.letters() == [letter]
    assert [act for act in await at.ledger() if act[1] != "rude"] == [("do", "a"), ("do", "c")]
    assert [reply.outcome for reply in await at.replies()] == ["done"] * 4


async def test_an_undo_of_what_its_own_function_committed_is_not_said_to_be_of_nothing(at: Bench) -> None:
    """What that function wrote stands, although nobody knows all that it would have written."""
    participant = Participant()

    async def commit(command: Command[Any], tx: Transaction) -> None:
        await tx.connection.execute("COMMIT")

    participant.pause = commit
    intake = at.intake(participant.consumer())
    await intake.handle([at.record(BookTruck(truck="a"), run="r", step="s")])
    await intake.handle([at.record(CancelTruck(truck="a"), run="r", step="s")])
    assert await at.ledger() == [("do", "a")]
    assert await at.replies() == [], "a reply would say that nothing was left to be undone"
    letters = await at.letters()
    assert ["MP332" in letter["message"] for letter in letters] == [True, True]
    assert participant.calls == ["do"]
