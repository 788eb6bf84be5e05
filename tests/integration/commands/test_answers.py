"""Commands and replies on a real database: effect and reply commit together, once, whatever comes twice."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from milepost import Command, Consumer, DefinitionError, Event, Refused, Transaction
from milepost.consumers.answering import write_reply
from milepost.inbox import barrier

from tests.support.inbox import IDS
from tests.support.trucks import (
    QUICK,
    Bench,
    BookTruck,
    CancelTruck,
    Participant,
    TruckBooked,
    TruckCancelled,
    bench,
    outcomes,
)

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACEPARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


@pytest.fixture
async def at(database_url: str) -> AsyncIterator[Bench]:
    async with bench(database_url) as found:
        yield found


async def test_the_reply_echoes_the_operation_and_carries_correlation_cause_and_trace(at: Bench) -> None:
    intake = at.intake(Participant().consumer())
    command = at.record(
        BookTruck(truck="a"),
        event_id=(event_id := IDS.new()),
        reply_to="shop.replies",
        run="r-1",
        step="truck",
        direction="do",
        attempt="3",
        ce_correlationid="order-7",
        ce_tenant="acme",
        traceparent=TRACEPARENT,
    )
    await intake.handle([command])
    [reply] = await at.replies()
    assert (reply.type, reply.topic, reply.key) == ("truck.booked", "shop.replies", "a")
    assert reply.body == {"truck": "a", "plate": "P-a"}
    echoed = {name: text for name, text in reply.headers.items() if name.startswith("milepost-")}
    assert echoed == {
        "milepost-run": "r-1",
        "milepost-step": "truck",
        "milepost-direction": "do",
        "milepost-attempt": "3",
        "milepost-outcome": "done",
    }
    assert reply.headers["ce_correlationid"] == "order-7"
    assert reply.headers["ce_causationid"] == str(event_id)
    assert reply.headers["ce_tenant"] == "acme"
    assert reply.headers["traceparent"].split("-")[1] == TRACE
    assert await at.ledger() == [("do", "a")]


@pytest.mark.parametrize(
    "broken",
    ["", "nonsense", TRACEPARENT.upper(), f"{TRACEPARENT},{TRACEPARENT}", "00-" + "0" * 32 + "-1-01"],
)
async def test_a_malformed_trace_context_never_fails_a_command(at: Bench, broken: str) -> None:
    await at.intake(Participant().consumer()).handle([at.record(BookTruck(truck="a"), traceparent=broken)])
    [reply] = await at.replies()
    assert reply.outcome == "done"
    assert reply.headers["traceparent"] != broken
    assert await at.letters() == []


async def test_a_command_that_names_nothing_is_answered_on_the_replys_own_topic(at: Bench) -> None:
    event_id = IDS.new()
    await at.intake(Participant().consumer()).handle([at.record(BookTruck(truck="a"), event_id=event_id)])
    [reply] = await at.replies()
    assert reply.topic == "truck-replies"
    assert reply.headers["ce_correlationid"] == reply.headers["ce_causationid"] == str(event_id)
    assert reply.headers["milepost-attempt"] == "1"
    assert await at.database.pool.fetchval("SELECT count(*) FROM milepost.barrier") == 0


async def test_a_duplicate_command_emits_nothing_new(at: Bench) -> None:
    """Scenario 6: the same record again, in the same batch, in a later one, and in another process."""
    participant = Participant()
    intake = at.intake(participant.consumer())
    one = at.record(BookTruck(truck="a"), run="r", step="s")
    await intake.handle([one, one])
    await intake.handle([one])
    await at.intake(participant.consumer()).handle([one])
    assert await at.ledger() == [("do", "a")]
    assert len(await at.replies()) == 1


async def test_another_attempt_gets_the_stored_reply_without_the_effect(at: Bench) -> None:
    participant = Participant()
    intake = at.intake(participant.consumer())
    first = at.record(BookTruck(truck="a"), run="r", step="s", attempt="1", reply_to="one")
    await intake.handle([first])
    second_id = IDS.new()
    second = at.record(
        BookTruck(truck="a"), event_id=second_id, run="r", step="s", attempt="2", reply_to="two"
    )
    await intake.handle([second])
    before, after = await at.replies()
    assert (after.id, after.type, after.body, after.key) == (before.id, before.type, before.body, before.key)
    assert after.headers["ce_time"] == before.headers["ce_time"]
    assert (before.topic, after.topic) == ("one", "two")
    assert after.headers["milepost-attempt"] == "2"
    assert after.headers["ce_causationid"] == str(second_id)
    assert participant.calls == ["do"]


async def test_operations_are_told_apart_by_tenant_run_step_and_participant(at: Bench) -> None:
    participant = Participant()
    records = [
        at.record(BookTruck(truck="1"), run="r", step="s"),
        at.record(BookTruck(truck="2"), run="r", step="s#1"),
        at.record(BookTruck(truck="3"), run="r2", step="s"),
        at.record(BookTruck(truck="4"), run="r", step="s", ce_tenant="acme"),
    ]
    await at.intake(participant.consumer()).handle(records)
    other = at.record(BookTruck(truck="5"), run="r", step="s")
    await at.intake(participant.consumer("other")).handle([other])
    assert [truck for _, truck in await at.ledger()] == ["1", "2", "3", "4", "5"]


async def test_a_refusal_is_a_reply_and_takes_back_what_was_written(at: Bench) -> None:
    participant = Participant()
    intake = at.intake(participant.consumer())
    event_id = IDS.new()
    await intake.handle([at.record(BookTruck(truck="no-1"), event_id=event_id, run="r", step="s")])
    await intake.handle([at.record(BookTruck(truck="no-1"), run="r", step="s", attempt="2")])
    await intake.handle([at.record(BookTruck(truck="no-2"))])
    stored, again, unnamed = await at.replies()
    assert (stored.type, stored.key) == ("truck.book.refused", "no-1")
    assert stored.body == {
        "code": "NO_TRUCK",
        "message": "none is free",
        "command": str(event_id),
        "run": "r",
        "step": "s",
        "direction": "do",
    }
    assert stored.headers["milepost-code"] == "NO_TRUCK"
    assert (again.id, again.headers["milepost-code"], again.headers["milepost-attempt"]) == (
        stored.id,
        "NO_TRUCK",
        "2",
    )
    assert unnamed.outcome == "refused"
    assert participant.calls == ["do", "do"], "a refusal is for good: it is not asked again"
    assert await at.ledger() == []
    assert await at.letters() == []


async def test_a_failure_is_no_reply_and_is_tried_and_parked_like_any_event(at: Bench) -> None:
    participant = Participant()
    await at.intake(participant.consumer()).handle(
        [
            at.record(BookTruck(truck="bad"), run="r", step="s"),
            at.record(BookTruck(truck="a"), run="r2", step="s"),
        ]
    )
    [letter] = await at.letters()
    assert (letter["code"], letter["attempts"]) == ("HANDLER_FAILED", 2)
    assert outcomes(await at.replies()) == ["truck.booked done"]
    assert await at.ledger() == [("do", "a")]
    assert await at.database.pool.fetchval("SELECT count(*) FROM milepost.barrier") == 1
    assert (
        await at.database.pool.fetchval("SELECT count(*) FROM milepost.barrier WHERE outcome = 'PENDING'")
        == 0
    )


async def test_an_operation_with_another_content_is_parked(at: Bench) -> None:
    intake = at.intake(Participant().consumer())
    await intake.handle([at.record(BookTruck(truck="a"), run="r", step="s")])
    await intake.handle([at.record(BookTruck(truck="b"), run="r", step="s", attempt="2")])
    [letter] = await at.letters()
    assert "MP476" in letter["message"]
    assert await at.ledger() == [("do", "a")]
    assert len(await at.replies()) == 1


async def wrong_answer(command: BookTruck, tx: Transaction) -> Any:
    return None


async def right_answer(command: BookTruck, tx: Transaction) -> TruckBooked:
    return TruckBooked(truck=command.truck, plate="p")


@pytest.mark.parametrize(
    ("answer", "bound", "reply_to", "code"),
    [
        (wrong_answer, True, "t", "MP473"),
        (right_answer, False, "t", "MP472"),
        (right_answer, True, "no topic", "MP475"),
    ],
)
async def test_what_cannot_be_answered_is_parked_with_the_reason(
    at: Bench, answer: Any, bound: bool, reply_to: str, code: str
) -> None:
    consumer = Consumer("trucks", retry=QUICK, reply=write_reply if bound else None)
    consumer.answers(BookTruck, TruckBooked)(answer)
    await at.intake(consumer).handle([at.record(BookTruck(truck="a"), reply_to=reply_to)])
    [letter] = await at.letters()
    assert code in letter["message"]
    assert await at.replies() == []


async def test_a_handler_that_ends_its_transaction_is_parked_at_once(at: Bench) -> None:
    async def rude(command: BookTruck, tx: Transaction) -> TruckBooked:
        await tx.connection.execute("ROLLBACK")
        raise Refused("NO")

    consumer = Consumer("trucks", retry=QUICK, reply=write_reply)
    consumer.answers(BookTruck, TruckBooked)(rude)
    await at.intake(consumer).handle([at.record(BookTruck(truck="a"), run="r", step="s")])
    [letter] = await at.letters()
    assert "MP332" in letter["message"] and letter["attempts"] == 1
    assert await at.replies() == []


async def test_commands_of_a_batch_are_begun_and_finished_together(
    at: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refusal in their midst takes back what its own function has written, and no other's."""
    monkeypatch.setattr(barrier._Sql, "begin", "no statement of one's own")
    intake = at.intake(Participant().consumer())
    await intake.handle(
        [at.record(BookTruck(truck=name), run=name, step="s") for name in ("a", "no-b", "c", "no-d", "e")]
    )
    assert await at.ledger() == [("do", "a"), ("do", "c"), ("do", "e")]
    assert [reply.outcome for reply in await at.replies()] == ["done", "refused", "done", "refused", "done"]
    assert await at.letters() == []
    rows = await at.database.pool.fetch(
        "SELECT run, outcome, reply_headers IS NOT NULL AS kept FROM milepost.barrier ORDER BY run"
    )
    assert [tuple(row) for row in rows] == [
        ("a", "DONE", True),
        ("c", "DONE", True),
        ("e", "DONE", True),
        ("no-b", "REFUSED", True),
        ("no-d", "REFUSED", True),
    ]
    monkeypatch.undo()
    again = [at.record(BookTruck(truck=n), run=n, step="s", attempt="2") for n in ("no-b", "c")]
    await intake.handle(again)
    assert [reply.outcome for reply in (await at.replies())[5:]] == ["refused", "done"]
    assert len(await at.ledger()) == 3


def test_declarations_that_cannot_work_are_refused() -> None:
    class Other(Event, type="truck.other", topic="t"):
        pass

    class Bare(Command, type="truck.bare", topic="t"):  # type: ignore[type-arg]
        pass

    consumer = Consumer("trucks")
    with pytest.raises(DefinitionError, match="MP470"):
        consumer.answers(BookTruck, Other)
    with pytest.raises(DefinitionError, match=r"MP470.*Command\[TheReply\]"):
        consumer.answers(Bare, Other)
    with pytest.raises(DefinitionError, match="MP477"):
        consumer.answers(CancelTruck, TruckCancelled, undoes=BookTruck)
    consumer.answers(BookTruck, TruckBooked)(right_answer)
    with pytest.raises(DefinitionError, match="MP123"):
        consumer.answers(BookTruck, TruckBooked)(right_answer)
    with pytest.raises(DefinitionError, match="MP124"):
        consumer.answers(CancelTruck, TruckCancelled)(lambda: None)  # type: ignore[arg-type, misc]
    with pytest.raises(DefinitionError, match="MP106"):

        class NoTopic(Command[Other], type="truck.nowhere"):
            pass
