"""Whatever a branch does when the one beside it ends, a run comes to its safe boundary; no state is one too many."""

from __future__ import annotations

import pytest
from milepost.sagas.shapes import all_of, optional
from milepost.schemas.options import Then
from milepost.schemas.states import RunState, StepState

from tests.support.besides import Do, Make, beside, fails, others, plain, plays, run_of


@pytest.mark.parametrize(
    ("cause", "it", "end"), fails(Then.COMPENSATE), ids=lambda v: v if isinstance(v, str) else ""
)
@pytest.mark.parametrize(
    ("title", "other", "become", "after"), others(), ids=lambda v: v if isinstance(v, str) else ""
)
def test_a_failure_meets_a_branch_in_any_state(
    cause: str, it: Make, end: Do, title: str, other: Make, become: Do, after: StepState
) -> None:
    play = run_of(beside(all_of, it, other))
    become(play)
    end(play)
    assert play.row("other").state is after
    assert play.run.state not in {RunState.RUNNING, RunState.WAITING, RunState.PENDING}


def test_every_play_comes_to_an_end_or_has_something_live() -> None:
    assert len(list(plays())) > 60


def test_what_an_optional_step_may_have_done_is_found_out_before_the_run_is_undone() -> None:
    """With `Then.FAIL` too: in a part that tolerates it, that is not asked, and the run may be undone later."""
    play = run_of(
        lambda saga: optional(plain("it", undo=True, no_undo=None, on_failure=Then.FAIL)(saga)), plain("next")
    )
    play.begin("it")
    play.end("it", verdict="unknown")
    assert play.row("it").state is StepState.UNKNOWN
