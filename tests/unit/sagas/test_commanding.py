"""Commands to participants: any attempt's success counts, only the latest one's refusal, and silence is asked about."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from milepost.sagas.definition import Definition
from milepost.sagas.facts import ProbeAbsent, ProbeFound, Replied, Succeeded
from milepost.schemas.commands import Command
from milepost.schemas.errors import DefinitionError
from milepost.schemas.events import Event
from milepost.schemas.options import Found, Probe, Repeat, Retry, Then
from milepost.schemas.states import RunState, StepState

from tests.support.branches import Branches
from tests.support.sagas import MINUTE, add_step, new_saga


class Booked(Event, type="truck.booked", topic="trucks", key="truck"):
    truck: str


class Book(Command[Booked], type="truck.book", topic="trucks", key="truck"):
    truck: str


class Other(Command[Event], type="truck.other", topic="trucks"):
    pass


def booking(
    repeat: Repeat = Repeat.SAFE,
    *,
    undo: str = "",
    attempts: int = 2,
    send: Any = lambda v: Book(truck=v.input.id),
    on_failure: Any = None,
    then: bool = True,
) -> Branches:
    """Return a started run whose first node is the command `book`."""
    saga = new_saga()
    book = saga.command(
        "book",
        send,
        reply=Booked,
        timeout=MINUTE,
        repeat=repeat,
        retry=Retry(attempts=attempts, within=None),
        on_failure=on_failure,
        no_undo=None if undo else "none needed",
    )
    if undo:

        async def cancel(ctx: Any, done: Any) -> None: ...

        book.undo(blind=True)(cancel) if undo == "blind" else book.undo(cancel)
    if repeat is Repeat.ASK_FIRST:

        @book.probe(settle=timedelta(0))
        async def ask(ctx: Any) -> Probe[Booked]:
            return Found(Booked(truck="x"))

    nodes: list[Any] = [
        book,
        *([add_step(saga, "after", retry=Retry(attempts=1), undo=bool(undo))] if then else []),
    ]
    saga.flow(*nodes)
    definition: Definition = saga.definition
    return Branches(definition)


def reply(attempt: int = 1, outcome: str = "done", direction: Any = "do", **more: Any) -> Replied:
    """A reply to the command."""
    body = {"truck": "t"} if outcome == "done" else None
    return Replied("book", direction, attempt, outcome, body, **more)


def test_it_is_sent_with_the_decision_and_waits_without_a_worker() -> None:
    play = booking()
    (send,) = play.last.sends
    assert (send.step, send.attempt, send.command) == ("book", 1, Book(truck="o-1"))
    assert (play.state_now(), play.state("book"), play.last.work) == (RunState.WAITING, StepState.WAITING, ())
    play.fact(reply())
    assert play.row("book").result == {"truck": "t"}
    assert play.open() == {"after"}


def test_silence_sends_a_safe_one_again_and_a_late_success_of_the_first_counts() -> None:
    play = booking()
    play.wake("book")
    assert [(s.step, s.attempt) for s in play.last.sends] == [("book", 2)]
    assert play.row("book").doubt
    play.fact(reply(1))
    assert play.state("book") is StepState.SUCCEEDED


def test_a_refusal_of_an_older_attempt_says_nothing() -> None:
    play = booking()
    play.wake("book")
    assert play.send(reply(1, "refused", code="NO_TRUCK")).answer == "ignored"
    assert play.state("book") is StepState.WAITING
    play.fact(reply(2, "refused", code="NO_TRUCK"))
    assert (play.state("book"), play.row("book").code) == (StepState.FAILED, "NO_TRUCK")


def test_a_repeated_reply_changes_nothing() -> None:
    play = booking()
    play.fact(reply())
    assert play.send(reply()).answer == "ignored"
    assert "reply.late" in play.events


def test_a_reply_that_is_not_of_its_class_goes_to_a_person() -> None:
    play = booking()
    play.fact(Replied("book", "do", 1, "done", {"wrong": 1}))
    assert (play.state_now(), play.row("book").code) == (RunState.MANUAL_REQUIRED, "REPLY_INVALID")


def test_a_reply_of_another_type_is_not_of_its_class_although_its_body_would_fit() -> None:
    play = booking()
    play.fact(reply(type="truck.cancelled"))
    assert (play.state_now(), play.row("book").code) == (RunState.MANUAL_REQUIRED, "REPLY_INVALID")
    assert "truck.cancelled" in (play.row("book").message or "")
    play = booking()
    play.fact(reply(type=Booked.milepost_spec.type))
    assert play.state("book") is StepState.SUCCEEDED


def test_a_late_reply_settles_what_a_person_was_asked_about() -> None:
    play = booking(Repeat.NEVER)
    play.wake("book")
    assert play.state_now() is RunState.MANUAL_REQUIRED
    play.fact(reply())
    assert play.open() == {"after"}


def test_one_that_may_not_be_repeated_is_asked_about_first() -> None:
    play = booking(Repeat.ASK_FIRST)
    play.wake("book")
    assert play.state("book") is StepState.UNKNOWN
    play.probe("book", ProbeFound({"truck": "t"}))
    assert play.open() == {"after"}


def test_one_that_the_probe_does_not_find_is_sent_again() -> None:
    play = booking(Repeat.ASK_FIRST, attempts=3)
    play.wake("book")
    play.probe("book", ProbeAbsent())
    assert [s.attempt for s in play.last.sends] == [2]
    assert play.state("book") is StepState.WAITING


def test_one_that_cannot_be_made_goes_to_a_person_who_may_try_again() -> None:
    broken = [True]

    def send(view: Any) -> Book:
        if broken:
            raise KeyError("x")
        return Book(truck="t")

    play = booking(send=send)
    assert (play.state_now(), play.row("book").code) == (RunState.MANUAL_REQUIRED, "SEND_FAILED")
    broken.clear()
    play.act("retry", "book")
    assert [s.step for s in play.last.sends] == ["book"]
    assert play.state_now() is RunState.WAITING


def test_another_command_than_declared_is_not_sent() -> None:
    play = booking(send=lambda v: Other())
    assert play.row("book").code == "SEND_FAILED"


def test_it_is_undone_by_a_command_whose_reply_ends_the_undo() -> None:
    play = booking(undo="plain")
    play.fact(reply())
    play.fail("after")
    play.begin("cancel")
    play.fact(Succeeded("cancel", play.row("cancel").fence, awaits_reply=True))
    assert (play.state("cancel"), play.state_now()) == (StepState.WAITING, RunState.COMPENSATING)
    assert play.send(reply(1)).answer == "ignored", "a late forward reply is never an undo's"
    play.fact(reply(1, direction="undo"))
    assert play.state_now() is RunState.COMPENSATED


def test_an_undo_that_nobody_answers_is_done_again() -> None:
    play = booking(undo="plain")
    play.fact(reply())
    play.fail("after")
    play.begin("cancel")
    play.fact(Succeeded("cancel", play.row("cancel").fence, awaits_reply=True))
    play.wake("cancel")
    assert play.state("cancel") is StepState.COMPENSATION_PENDING
    play.begin("cancel")
    assert play.row("cancel").attempt == 2


def test_an_undo_that_is_refused_stops_and_is_seen() -> None:
    play = booking(undo="plain")
    play.fact(reply())
    play.fail("after")
    play.begin("cancel")
    play.fact(Succeeded("cancel", play.row("cancel").fence, awaits_reply=True))
    play.fact(reply(1, "refused", "undo", code="TOO_LATE"))
    assert (play.state_now(), play.row("cancel").code) == (RunState.COMPENSATION_FAILED, "TOO_LATE")


@pytest.mark.parametrize("undo", [False, True])
def test_a_run_that_stops_waits_for_the_reply_first(undo: bool) -> None:
    play = booking(undo="plain")
    play.act("cancel", None) if not undo else play.act("cancel", None, undo=True)
    assert (play.state_now(), play.state("book")) == (RunState.CANCEL_REQUESTED, StepState.WAITING)
    play.fact(reply())
    if undo:
        assert play.undo() == "cancel"
        assert play.state_now() is RunState.COMPENSATED
    else:
        assert play.state_now() is RunState.CANCELLED


def test_a_blind_undo_needs_no_reply() -> None:
    play = booking(undo="blind", attempts=1)
    play.wake("book")
    assert play.state("book") is StepState.FAILED
    assert play.undo() == "cancel"


def test_the_name_fits_its_header() -> None:
    saga = new_saga()
    with pytest.raises(DefinitionError) as raised:
        saga.flow(
            saga.command(
                "n" * 151,
                lambda v: Book(truck="t"),
                reply=Booked,
                timeout=MINUTE,
                repeat=Repeat.SAFE,
                on_failure=Then.FAIL,
            )
        )
    assert raised.value.code == "MP140"
