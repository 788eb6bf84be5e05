"""Who gets the next slot."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from milepost.consumers.slots import PASSED_OVER, Slots, Ticket, Turns
from milepost.schemas.states import Priority

HIGH, NORMAL, LOW = Priority


def order(turns: Turns) -> list[Priority]:
    """Let everybody have a slot one after the other."""
    found = []
    while given := turns.grant():
        for ticket in given:
            found.append(ticket.priority)
            turns.leave(ticket)
    return found


def test_high_comes_first_and_equals_as_they_came() -> None:
    turns = Turns(1)
    held = turns.ask(LOW)
    assert turns.grant() == [held]
    asked = [turns.ask(p) for p in (LOW, NORMAL, HIGH, LOW, HIGH, NORMAL)]
    assert turns.grant() == []
    turns.leave(held)
    came = []
    while given := turns.grant():
        came += given
        turns.leave(given[0])
    assert came == [asked[n] for n in (2, 4, 1, 5, 0, 3)]


def test_of_ten_slots_that_low_could_have_it_gets_one() -> None:
    turns = Turns(1)
    for _ in range(100):
        turns.ask(HIGH)
        turns.ask(LOW)
    first = order(turns)[:100]
    assert Counter(first) == {HIGH: 90, LOW: 10}
    assert first[: PASSED_OVER + 1] == [HIGH] * PASSED_OVER + [LOW]


def test_reserved_slots_are_for_high_alone_whoever_waits() -> None:
    turns = Turns(10, reserved=2)
    for _ in range(30):
        turns.ask(LOW)
    assert len(turns.grant()) == 8, "the rest waits"
    urgent = [turns.ask(HIGH), turns.ask(HIGH), turns.ask(HIGH)]
    assert turns.grant() == urgent[:2], "at once, though everything else is taken by LOW"
    assert turns.kept_from(LOW)
    assert turns.kept_from(NORMAL)
    assert not turns.kept_from(HIGH)


@settings(max_examples=300, deadline=None)
@given(
    total=st.integers(1, 6),
    reserved=st.integers(0, 5),
    acts=st.lists(
        st.tuples(
            st.sampled_from(["ask", "leave", "withdraw"]), st.sampled_from(list(Priority)), st.integers(0, 50)
        )
    ),
)
def test_no_slot_is_lost_or_given_twice(
    total: int, reserved: int, acts: list[tuple[str, Priority, int]]
) -> None:
    turns = Turns(total, min(reserved, total - 1))
    waiting: list[Ticket] = []
    working: list[Ticket] = []
    for what, priority, which in acts:
        if what == "ask":
            waiting.append(turns.ask(priority))
        elif what == "leave" and working:
            turns.leave(working.pop(which % len(working)))
        elif what == "withdraw" and waiting:
            turns.leave(waiting.pop(which % len(waiting)))
        for ticket in turns.grant():
            waiting.remove(ticket)
            working.append(ticket)
        others = [t for t in working if t.priority is not HIGH]
        assert len(working) == turns.taken <= total
        assert len(others) == turns.taken_by_others <= total - turns.reserved
        free_for_all = len(working) < total and len(others) < total - turns.reserved
        assert not (waiting and free_for_all), "a slot is free and somebody waits"
        assert not (len(working) < total and any(t.priority is HIGH for t in waiting)), (
            "HIGH waits for nothing"
        )


@pytest.mark.asyncio
async def test_who_is_cancelled_while_waiting_keeps_no_slot() -> None:
    slots = Slots(1)
    held = await slots.acquire()
    gone = asyncio.ensure_future(slots.acquire(HIGH))
    stays = asyncio.ensure_future(slots.acquire(LOW))
    await asyncio.sleep(0)
    assert slots.kept_from(LOW)
    slots.release(held)
    gone.cancel()
    async with asyncio.timeout(5):
        low = await stays
    assert low.priority is LOW
    assert slots.take(HIGH) is None
    slots.release(low)
    assert slots.take(HIGH) is not None
