"""What follows from a look at a run that stood in front of a person, decided without any look."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from milepost import DefinitionError, Then
from milepost.sagas.decide import decide
from milepost.sagas.facts import Act
from milepost.sagas.model import Decision, Run
from milepost.sagas.resuming import Checked, Outcome, Reason, concerns, outcome_of, refusing, rests_on
from milepost.schemas.states import RunState, StepKind, StepState

from tests.support.artifacts import MADE
from tests.support.sagas import LIMITS, NOW, add_step, flow, new_run, new_saga

LOOK = Reason("CHECK_FOUND", "look at it", blocks=False)
GONE = Reason("ARTIFACT_MISSING", "it is gone", blocks=True)


def checked_saga() -> Any:
    """A definition with an own check."""
    saga = new_saga()
    add_step(saga, "one")
    add_step(saga, "act", on_failure=Then.PERSON)

    @saga.revalidate
    async def still(ctx: Any) -> str | None:
        return None

    return flow(saga)


DEFINITION = checked_saga()


def held(**more: Any) -> Run:
    """A run in front of a person."""
    from milepost.sagas.model import Step

    row = Step(
        name="act",
        kind=StepKind.STEP,
        state=StepState.MANUAL_REQUIRED,
        since=NOW,
        wake_at=NOW,
        code="NO",
        attempt=1,
    )
    return replace(
        new_run(DEFINITION), state=RunState.MANUAL_REQUIRED, code="NO", steps=(row,), version=4, **more
    )


def retried(outcome: Outcome, *reasons: Reason, run: Run | None = None) -> Decision:
    """Retry with what a look has found."""
    fact = Act("retry", "ann", "because", step="act", checked=Checked(outcome, 4, reasons))
    return decide(DEFINITION, run or held(), fact, NOW, dice=0.5, limits=LIMITS)


def test_what_blocks_or_needs_a_review_holds_the_run_where_it_is() -> None:
    for outcome, reason, event in (
        ("RESUME_BLOCKED", GONE, "resume.blocked"),
        ("REVIEW_REQUIRED", LOOK, "resume.review_required"),
    ):
        decision = retried(outcome, reason)  # type: ignore[arg-type]
        assert decision.answer == "refused" and decision.reason == f"{outcome}: {reason.code}: {reason.text}"
        assert (decision.run.state, decision.run.code) == (RunState.MANUAL_REQUIRED, outcome)
        assert [entry.event for entry in decision.history] == [event]
        assert not decision.changed and not decision.work


def test_what_passed_or_was_reviewed_goes_on_and_says_so() -> None:
    for outcome, reasons, event in (
        ("PASSED", (), "resume.passed"),
        ("REVIEWED", (LOOK,), "resume.reviewed"),
    ):
        decision = retried(outcome, *reasons)  # type: ignore[arg-type]
        assert (
            decision.answer == "changed"
            and decision.run.state is RunState.RUNNING
            and decision.run.code is None
        )
        assert [entry.event for entry in decision.history] == [event, "act.retry"]


def test_a_run_that_is_stopping_is_never_held_back() -> None:
    assert concerns(DEFINITION, held(), "retry") and concerns(DEFINITION, held(), "skip")
    assert not concerns(DEFINITION, held(cause="DEADLINE"), "retry")
    assert not concerns(DEFINITION, held(), "cancel") and not concerns(DEFINITION, held(), "compensate")
    assert not concerns(DEFINITION, replace(held(), state=RunState.COMPENSATION_FAILED), "retry")


def test_without_a_check_only_artifacts_and_fingerprints_are_looked_at() -> None:
    plain = replace(DEFINITION, revalidate=None)
    assert not concerns(plain, held(), "retry")
    assert concerns(replace(plain, fingerprint=lambda given: {"a": 1}), held(), "retry")
    refers = {"id": "o-1", "made": [MADE.model_dump(mode="json")] * 2}
    assert concerns(plain, held(input=refers), "retry")
    assert list(rests_on(held(input=refers))) == [MADE], "each once"


def test_one_reason_that_blocks_is_enough() -> None:
    assert outcome_of(()) == "PASSED"
    assert outcome_of((LOOK,)) == "REVIEW_REQUIRED"
    assert outcome_of((LOOK, GONE)) == "RESUME_BLOCKED"


def test_a_saga_has_one_check_which_is_an_async_function_of_a_context() -> None:
    saga = new_saga()
    add_step(saga, "one")

    async def fine(ctx: Any) -> str | None:
        return None

    def plain(ctx: Any) -> str | None:
        return None

    async def two(ctx: Any, more: Any) -> str | None:
        return None

    wrong: list[tuple[Any, str]] = [(plain, "MP107"), (two, "MP117")]
    for fn, code in wrong:
        with pytest.raises(DefinitionError, match=code):
            saga.revalidate(fn)
    saga.revalidate(fine)
    with pytest.raises(DefinitionError, match="MP127"):
        saga.revalidate(fine)
    flow(saga)
    with pytest.raises(DefinitionError, match="MP111"):
        saga.revalidate(fine)
    with pytest.raises(DefinitionError, match="MP129"):
        refusing("ctx.emit")(1)
