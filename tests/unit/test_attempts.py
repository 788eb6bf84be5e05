"""Whose a claim is that nobody was answered about: taken up once, and only by who may begin it."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from uuid import UUID

from milepost.consumers.attempts import Attempts, Hold
from milepost.sagas.model import Decision, Run, Step
from milepost.schemas.states import RunState, StepKind, StepState

RUN, LEASE = UUID(int=1), UUID(int=2)


@dataclass(frozen=True)
class Told:
    """The database's answer."""

    decision: Decision
    known: None = None


class World:
    """One step, claimed under fence 1."""

    def __init__(self) -> None:
        self.lease, self.time = LEASE, 0.0
        self.attempts = Attempts(lambda worker: worker == self.lease, lambda: self.time, 10.0)
        now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
        self.step = Step(
            name="pay", kind=StepKind.STEP, state=StepState.RUNNING, since=now, worker=LEASE, fence=1
        )
        self.hold = Hold.of(RUN, self.step)
        self.run = Run(
            id=RUN,
            tenant="",
            saga="s",
            key="k",
            definition=1,
            input=None,
            state=RunState.RUNNING,
            correlation_id="",
            steps=(self.step,),
        )
        self.decision = Decision(answer="changed", run=self.run, claimed=self.step)

    def lose(self) -> None:
        with self.attempts.attempt(RUN) as attempt:
            attempt.asks(self.hold)
            attempt.unanswered()

    def recovers(self) -> bool:
        with self.attempts.attempt(RUN) as attempt:
            return attempt.recover(self.run, self.step) and attempt.answered(None) is not None


def test_a_lost_claim_is_taken_up_once() -> None:
    world = World()
    assert not world.recovers(), "nobody has asked for it"
    world.lose()
    assert world.recovers()
    assert not world.recovers()


def test_an_exception_loses_what_was_asked() -> None:
    world = World()
    try:
        with world.attempts.attempt(RUN) as attempt:
            attempt.asks(world.hold)
            raise OSError
    except OSError:
        pass
    assert world.recovers()


def test_it_may_be_the_claim_of_somebody_who_still_waits() -> None:
    world = World()
    world.lose()
    with world.attempts.attempt(RUN) as other:
        other.asks(world.hold)
        assert not world.recovers(), "the row may be the other's, who will begin it"
        assert other.answered(Told(world.decision)) is not None
        assert not world.recovers()
    assert not world.recovers()


def test_who_asked_for_what_somebody_has_begun_loses_nothing() -> None:
    """It decided on the row as it was before the claim, and its connection broke after it."""
    world = World()
    with world.attempts.attempt(RUN) as slow:
        slow.asks(world.hold)
        with world.attempts.attempt(RUN) as quick:
            quick.asks(world.hold)
            assert quick.answered(Told(world.decision)) is not None
        slow.unanswered()
        assert not world.recovers()
    assert not world.recovers()


def test_who_decides_anew_has_taken_up_nothing() -> None:
    world = World()
    world.lose()
    with world.attempts.attempt(RUN) as attempt:
        assert attempt.recover(world.run, world.step)
        attempt.anew()
        assert attempt.answered(None) is None
    assert world.recovers()


def test_what_is_lost_too_long_or_under_an_old_lease_is_left_to_its_hard_timeout() -> None:
    world = World()
    world.lose()
    world.lease = UUID(int=3)
    assert not world.recovers()
    world.lease = LEASE
    world.time = 10.0
    assert not world.recovers()


def test_nothing_is_kept_of_runs_that_nobody_asks_about() -> None:
    world = World()
    with world.attempts.attempt(RUN) as attempt:
        attempt.asks(world.hold)
        attempt.answered(Told(world.decision))
    assert not world.attempts._begun and not world.attempts._under_way and not world.attempts._lost
