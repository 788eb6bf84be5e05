"""The other side dedupes on a key for a while only: after that, what may have happened is asked about, not repeated."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from milepost.sagas.facts import Act, Claim, ProbeFound, TryFailed
from milepost.schemas.errors import DefinitionError
from milepost.schemas.options import OnFailure, Repeat, Retry, Then
from milepost.schemas.states import RunState, StepState

from tests.support.sagas import HOUR, MINUTE, NOW, SECOND, WORKER, Play, add_step, flow, new_saga

DAY = timedelta(hours=24)
#: Tries begin until then: one may last for 30 s.
LAST = DAY - 30 * SECOND


def play(
    *,
    probe: bool = False,
    retry: Retry | None = None,
    undo: bool = False,
    on_failure: OnFailure | None = None,
) -> Play:
    saga = new_saga()
    add_step(saga, "charge", window=DAY, probe=probe, retry=retry, undo=undo, on_failure=on_failure)
    return Play(flow(saga))


def claimed(it: Play) -> bool:
    return it.send(Claim("charge", WORKER)).claimed is not None


def lost(it: Play) -> None:
    """Lose the answer of a try."""
    it.fail("charge", "unknown", "TIMEOUT")


def retried(it: Play, *, did_not_happen: bool = False) -> str:
    act = Act("retry", by="ann", reason="again", step="charge", did_not_happen=did_not_happen)
    return it.send(act).answer


def test_within_it_a_lost_answer_is_simply_tried_again() -> None:
    it = play()
    lost(it)
    assert it.state("charge") is StepState.RETRY_PENDING
    it.now = NOW + LAST
    it.wake("charge")
    assert it.claim("charge").attempt == 2


@pytest.mark.parametrize("probe", [True, False])
def test_a_retry_that_comes_too_late_is_asked_about_when_it_is_taken(probe: bool) -> None:
    """As after a night in which nothing ran: the retry was due in time, and nobody was there."""
    it = play(probe=probe)
    lost(it)
    it.now = NOW + LAST + SECOND
    it.wake("charge")
    fence = it.step("charge").fence
    assert not claimed(it)
    assert it.step("charge").fence > fence, "whoever had it before has it no more"
    if probe:
        assert it.state("charge") is StepState.UNKNOWN
        it.probe("charge", ProbeFound({"id": "it"}))
        assert it.state("charge") is StepState.SUCCEEDED
    else:
        assert (it.state("charge"), it.run.state) == (StepState.MANUAL_REQUIRED, RunState.MANUAL_REQUIRED)
        assert it.step("charge").code == "OUTCOME_UNKNOWN"
        assert "forgotten the key" in (it.step("charge").message or "")


def test_a_pause_that_ends_after_it_is_not_waited_for() -> None:
    it = play(retry=Retry(attempts=5, first=2 * DAY, cap=2 * DAY, within=None))
    it.dice = 0.9
    lost(it)
    assert it.state("charge") is StepState.MANUAL_REQUIRED


def test_a_person_who_retries_on_day_three_is_asked_whether_it_happened() -> None:
    it = play(retry=Retry(attempts=1), on_failure=Then.PERSON)
    lost(it)
    assert it.state("charge") is StepState.MANUAL_REQUIRED
    it.now = NOW + 3 * DAY
    assert retried(it) == "refused"
    assert "may have taken effect" in it.last.reason
    assert retried(it, did_not_happen=True) == "changed"
    assert it.claim("charge").attempt == 1
    assert it.step("charge").first_at == it.now, "a new first call, remembered anew"


def test_a_person_who_retries_in_time_does_not_begin_a_new_memory() -> None:
    it = play(retry=Retry(attempts=1), on_failure=Then.PERSON)
    lost(it)
    assert it.state("charge") is StepState.MANUAL_REQUIRED
    it.now = NOW + HOUR
    assert retried(it) == "changed"
    it.now = NOW + LAST + SECOND
    assert not claimed(it)
    assert it.state("charge") is StepState.MANUAL_REQUIRED


def test_no_call_that_is_known_not_to_have_arrived_counts() -> None:
    it = play()
    it.fail("charge", "not_sent", "REFUSED")
    it.now = NOW + 3 * DAY
    it.wake("charge")
    assert it.claim("charge").attempt == 2


def test_what_has_to_be_undone_is_not_found_out_by_a_repetition() -> None:
    it = play(retry=Retry(attempts=1), undo=True)
    lost(it)
    assert (it.state("charge"), it.run.cause) == (StepState.UNKNOWN, "TIMEOUT")
    it.now = NOW + LAST + SECOND
    assert not claimed(it)
    assert it.state("charge") is StepState.MANUAL_REQUIRED
    assert it.run.state is RunState.MANUAL_REQUIRED


@given(st.lists(st.integers(min_value=0, max_value=20 * 3600), min_size=1, max_size=8))
def test_no_doubtful_call_begins_when_its_key_may_be_forgotten(pauses: list[int]) -> None:
    it = play(retry=Retry(attempts=10, within=None))
    begun = [it.now]
    lost(it)
    for pause in pauses:
        it.now += timedelta(seconds=pause)
        if it.state("charge") is StepState.RETRY_PENDING:
            it.wake("charge")
        if it.state("charge") is not StepState.PENDING or not claimed(it):
            break
        begun.append(it.now)
        it.send(TryFailed("charge", it.step("charge").fence, "unknown", "TIMEOUT", "said so"))
    assert max(begun) <= begun[0] + LAST


@pytest.mark.parametrize(
    ("repeat", "window"),
    [(Repeat.NEVER, DAY), (Repeat.SAFE, 30 * SECOND), (Repeat.SAFE, -MINUTE), (Repeat.SAFE, 4000 * DAY)],
)
def test_a_window_that_means_nothing_is_refused(repeat: Repeat, window: timedelta) -> None:
    saga = new_saga()
    add_step(saga, "charge", repeat, window=window)
    with pytest.raises(DefinitionError) as error:
        flow(saga)
    assert error.value.code == "MP145"
