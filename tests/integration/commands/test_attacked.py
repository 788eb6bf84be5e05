"""What a requester writes into a command's headers and fields neither misleads a participant nor makes it act twice."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from milepost import Command, Consumer, Transaction
from milepost.consumers.answering import write_reply

from tests.support.trucks import Bench, BookTruck, Participant, TruckBooked, bench


@pytest.fixture
async def at(database_url: str) -> AsyncIterator[Bench]:
    async with bench(database_url) as found:
        yield found


class BookStops(Command[TruckBooked], type="truck.book-stops", topic="trucks", key="truck"):
    truck: str
    stops: set[int]


async def test_a_reply_goes_to_no_topic_of_kafka_itself(at: Bench) -> None:
    wrong = ("..", ".", "__consumer_offsets", "or ders", "x" * 250)
    intake = at.intake(Participant().consumer())
    for topic in wrong:
        named = {"run": topic[:9], "step": "s"}
        await intake.handle([at.record(BookTruck(truck="a"), of=named, reply_to=topic)])
    letters = await at.letters()
    assert ["MP475" in letter["message"] for letter in letters] == [True] * 4 + [False]
    assert (await at.replies(), await at.ledger()) == ([], [])


async def test_another_attempt_with_its_set_in_another_order_is_the_same(at: Bench) -> None:
    """A set has no order, and each process writes one in an order of its own."""
    one, other = set[int](), set[int]()
    one.update((0, 8))
    other.update((8, 0))
    assert (one, list(one)) == (other, list(reversed(list(other)))), "these two are written differently"
    calls = []
    consumer = Consumer("stops", reply=write_reply)

    @consumer.answers(BookStops, TruckBooked)
    async def book(command: BookStops, tx: Transaction) -> TruckBooked:
        calls.append(command.truck)
        return TruckBooked(truck=command.truck, plate="P")

    intake = at.intake(consumer)
    for attempt, stops in (("1", one), ("2", other)):
        named = {"run": "r", "step": "s"}
        await intake.handle([at.record(BookStops(truck="a", stops=stops), of=named, attempt=attempt)])
    assert await at.letters() == []
    first, second = await at.replies()
    assert first.id == second.id and calls == ["a"]
