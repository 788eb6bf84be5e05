"""Workers that are lost or stuck, and what else comes from outside unfit."""

from __future__ import annotations

from milepost.sagas.facts import Claim, Wake
from milepost.sagas.model import Work
from milepost.schemas.options import Repeat, Retry
from milepost.schemas.states import RunState, StepState

from tests.support.sagas import HOUR, NOW, SECOND, WORKER, Play, add_step, add_tx, flow, new_saga

RETRY = Retry(attempts=3, first=8 * SECOND, within=None)


def one(repeat: Repeat, **options: object) -> Play:
    saga = new_saga()
    add_step(saga, "work", repeat, probe=repeat is Repeat.ASK_FIRST, retry=RETRY, **options)  # type: ignore[arg-type]
    return Play(flow(saga))


def test_a_lost_worker_of_a_safe_step_costs_one_try_and_no_time() -> None:
    play = one(Repeat.SAFE)
    fence = play.claim("work").fence
    ended = NOW + 30 * SECOND
    play.now = NOW + 45 * SECOND
    play.lose("work", ended)
    step = play.step("work")
    assert (step.state, step.attempt, step.doubt_at, step.worker) == (StepState.PENDING, 1, ended, None)
    assert step.fence > fence
    assert play.last.work == (Work("work", "work", "default"),)


def test_a_lost_worker_of_an_ask_first_step_leaves_it_unknown_since_its_lease_ended() -> None:
    play = one(Repeat.ASK_FIRST)
    play.claim("work")
    ended = NOW + 30 * SECOND
    play.now = NOW + 45 * SECOND
    play.lose("work", ended)
    assert (play.state("work"), play.step("work").doubt_at) == (StepState.UNKNOWN, ended)


def test_a_try_cannot_have_ended_before_it_began() -> None:
    play = one(Repeat.ASK_FIRST)
    play.claim("work")
    play.lose("work", NOW - HOUR)
    assert play.step("work").doubt_at == NOW


def test_a_lost_worker_of_a_never_step_calls_a_person() -> None:
    play = one(Repeat.NEVER)
    play.claim("work")
    play.lose("work")
    assert play.run.state is RunState.MANUAL_REQUIRED


def test_a_transactional_step_is_never_in_doubt() -> None:
    saga = new_saga()
    add_tx(saga, "work")
    play = Play(flow(saga))
    for _ in range(2):
        play.claim("work")
        play.lose("work")
        assert (play.state("work"), play.step("work").doubt) == (StepState.PENDING, False)
    play.claim("work")
    play.lose("work")
    assert (play.state("work"), play.step("work").doubt) == (StepState.FAILED, False)


def test_a_worker_that_dies_again_and_again_uses_the_tries_up() -> None:
    play = one(Repeat.SAFE)
    for _ in range(3):
        play.claim("work")
        play.lose("work")
    assert (play.state("work"), play.step("work").code) == (StepState.FAILED, "WORKER_LOST")


def test_stale_of_another_fence_is_ignored() -> None:
    play = one(Repeat.SAFE)
    play.claim("work")
    play.lose("work")
    play.claim("work")
    from milepost.sagas.facts import Stale

    assert play.send(Stale("work", 1, NOW)).answer == "ignored"
    assert play.state("work") is StepState.RUNNING


def test_a_stuck_worker_meets_the_hard_timeout() -> None:
    play = one(Repeat.ASK_FIRST)
    step = play.claim("work")
    play.wake("work")
    after = play.step("work")
    assert (after.state, after.code, after.doubt_at) == (StepState.UNKNOWN, "HARD_TIMEOUT", play.now)
    assert after.fence > step.fence


def test_codes_and_messages_from_outside_are_made_fit_to_be_stored() -> None:
    play = one(Repeat.SAFE)
    play.fail("work", "not_sent", "A\x00B" + "x" * 500)
    code = play.step("work").code
    assert code is not None
    assert "\x00" not in code
    assert len(code) == 200


def test_a_step_whose_policy_no_longer_lets_it_ask_goes_to_a_person() -> None:
    play = one(Repeat.ASK_FIRST)
    play.fail("work", "unknown")
    saga = new_saga()
    add_step(saga, "work", Repeat.NEVER)
    play.definition = flow(saga)
    assert play.send(Claim("work", WORKER)).answer == "refused"
    play.send(Wake("work", play.step("work").generation))
    assert play.run.state is RunState.MANUAL_REQUIRED
