"""Every state meets every fact: an answer each time, never an exception, and nothing that the tables do not allow."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from milepost.sagas import transitions
from milepost.sagas.decide import decide, then_claim
from milepost.sagas.definition import Definition
from milepost.sagas.model import (
    Claim,
    Fact,
    HandedBack,
    ProbeAbsent,
    Probed,
    ProbeError,
    ProbeFailed,
    ProbeFound,
    ProbeInProgress,
    Run,
    Signalled,
    Stale,
    Start,
    Step,
    Succeeded,
    TryFailed,
    Verdict,
    Wake,
)
from milepost.schemas.options import Found, OnTimeout, Probe, Repeat, Retry, Then
from milepost.schemas.states import FINAL_RUN_STATES, FINAL_STEP_STATES, RunState, StepKind, StepState

from tests.support.sagas import (
    HOUR,
    LIMITS,
    NOW,
    OTHER,
    WORKER,
    Delivered,
    add_step,
    add_tx,
    check_decision,
    flow,
    has_live_row,
    new_run,
    new_saga,
)

HELD = {StepState.RUNNING, StepState.RECONCILING, StepState.COMPENSATING}


def definitions() -> Iterator[tuple[str, Definition]]:
    """One saga per way in which a step or wait can behave, each with something before and after it."""
    for repeat, undo, then in itertools.product(
        Repeat, ("none", "plain", "blind"), (Then.COMPENSATE, Then.FAIL, Then.PERSON)
    ):
        saga = new_saga()
        add_step(saga, "before", undo=True, undo_retry=Retry(attempts=2), retry=Retry(attempts=1))
        add_step(
            saga,
            "it",
            repeat,
            undo=undo == "plain",
            blind=undo == "blind",
            probe=repeat is Repeat.ASK_FIRST,
            on_failure=then,  # type: ignore[arg-type]
            no_undo="nothing to undo" if undo == "none" else None,
            retry=Retry(attempts=2, within=None),
            undo_retry=Retry(attempts=2),
        )
        add_step(saga, "after", retry=Retry(attempts=1))
        yield f"{repeat.name}-{undo}-{then.name}", flow(saga)
    yield from _special()
    for policy in (Then.RECONCILE, Then.RETRY, Then.CANCEL, Then.COMPENSATE, Then.CONTINUE, Then.PERSON):
        for last in (False, True):
            yield f"wait-{policy.name}-{last}", _wait(policy, last)


def _special() -> Iterator[tuple[str, Definition]]:
    saga = new_saga()
    add_step(saga, "it", irreversible=True, retry=Retry(attempts=2))
    yield "irreversible", flow(saga)
    saga = new_saga()
    add_step(saga, "it", probe=True, undo=True, retry=Retry(attempts=2))
    yield "safe-probe", flow(saga)
    saga = new_saga()
    add_step(saga, "before", undo=True)
    add_tx(saga, "it", retry=Retry(attempts=2))
    yield "tx", flow(saga)


def _wait(policy: OnTimeout, last: bool) -> Definition:
    saga = new_saga()
    add_step(saga, "before", undo=True)
    wait = saga.wait("it", Delivered, match=lambda v: v.input.id, timeout=HOUR, on_timeout=policy)
    if policy is Then.RECONCILE:

        @wait.probe
        async def ask(ctx: Any) -> Probe[Delivered]:
            return Found(Delivered(id="x"))

    saga.wait("again", Delivered, match=lambda v: v.input.id, timeout=HOUR, on_timeout=Then.PERSON)
    if not last:
        add_step(saga, "after", on_failure=Then.PERSON)
    return flow(saga)


DEFINITIONS = dict(definitions())


def facts(step: Step, ages: tuple[int, ...] = (0, 1)) -> list[Fact]:
    """Every kind of fact, with the right and with an older fence or generation."""
    found: list[Fact] = [Start(), Claim(step.name, OTHER), Wake(None, 0), Claim("nobody", OTHER)]
    for fence in (step.fence - age for age in ages):
        found += [
            Succeeded(step.name, fence, {"id": "x"}),
            HandedBack(step.name, fence),
            Stale(step.name, fence, NOW - timedelta(seconds=5)),
        ]
        verdicts: tuple[tuple[Verdict, timedelta | None], ...] = (
            ("retry", None),
            ("fatal", None),
            ("unknown", None),
            ("not_sent", timedelta.max),
        )
        found += [TryFailed(step.name, fence, verdict, "CODE", "words", pause) for verdict, pause in verdicts]
        answers = (
            ProbeFound({"id": "x"}),
            ProbeAbsent(),
            ProbeInProgress(timedelta(seconds=30)),
            ProbeFailed("NO"),
            ProbeError("X", "words"),
        )
        found += [Probed(step.name, fence, answer) for answer in answers]
    for generation in (step.generation - age for age in ages):
        found += [
            Wake(step.name, generation),
            Signalled(step.name, generation, {"id": "x"}),
            Signalled(step.name, generation, {"wrong": "body"}),
        ]
    return found


def rows(name: str, kind: StepKind, undo_of: str | None) -> Iterator[Step]:
    """A row in every state, with and without doubt, tries left, and a signal."""
    for state, doubt, attempt, signal in itertools.product(
        StepState, (False, True), (1, 2), (None, {"id": "s"})
    ):
        if (signal is not None and kind is not StepKind.WAIT) or (
            state in FINAL_STEP_STATES and attempt == 2
        ):
            continue
        yield Step(
            name=name,
            kind=kind,
            state=state,
            since=NOW,
            undo_of=undo_of,
            attempt=attempt,
            fence=3,
            generation=4,
            worker=WORKER if state in HELD else None,
            wake_at=None if state in FINAL_STEP_STATES else NOW,
            doubt=doubt,
            doubt_at=NOW - 2 * HOUR if attempt == 2 else NOW,
            result={"id": "x"} if state is StepState.SUCCEEDED else None,
            finish_no=2 if state is StepState.SUCCEEDED else None,
            first_at=NOW,
            started_at=NOW,
            signal=signal,
        )


def runs(definition: Definition, row: Step) -> Iterator[Run]:
    before = Step(
        name="before",
        kind=StepKind.STEP,
        state=StepState.SUCCEEDED,
        since=NOW,
        result={"id": "b"},
        finish_no=1,
        finished_at=NOW,
    )
    for state in RunState:
        final = state in FINAL_RUN_STATES
        steps = (before, row) if definition.node("before") is not None and row.undo_of != "before" else (row,)
        yield replace(
            new_run(definition),
            state=state,
            finish_n=2,
            wake_at=None if final else NOW,
            finished_at=NOW if final else None,
            cause="CAUSE",
            steps=steps,
        )


@pytest.mark.parametrize("name", [name for name in DEFINITIONS if not name.endswith(("-FAIL", "-PERSON"))])
def test_every_state_answers_every_fact(name: str) -> None:
    definition = DEFINITIONS[name]
    node = definition.node("it")
    assert node is not None
    kinds = [("it", node.kind, None)] + ([(node.undo.name, StepKind.UNDO, "it")] if node.undo else [])
    answers = set()
    for row in (row for kind in kinds for row in rows(*kind)):
        for run, fact in itertools.product(runs(definition, row), facts(row)):
            decision = decide(definition, run, fact, NOW, dice=0.5, limits=LIMITS)
            answers.add(decision.answer)
            assert decision.answer == "changed" or decision.reason
            check_decision(run, decision)
            folded = then_claim(definition, decision, OTHER, NOW, queue="default", limits=LIMITS)
            assert folded.run.state in RunState
    assert answers == {"changed", "ignored", "refused"}


# --- what is reached, and that it is what the tables say ---------------------------------------------


def seen(run: Run) -> tuple[Any, ...]:
    """What of a run decides its future, so that the search ends."""
    ends = [(s.name, s.state, s.doubt) for s in run.steps if s.state in FINAL_STEP_STATES]
    live = [
        (s.name, s.state, s.doubt, s.doubt_at == NOW, s.attempt)
        for s in run.steps
        if s.state not in FINAL_STEP_STATES
    ]
    return (run.state, tuple(ends), tuple(live))


def test_the_tables_hold_exactly_what_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """Search all that can happen in all sagas: no other arrow than the tables', and no arrow that is never used."""
    steps: dict[Any, set[str]] = {}
    moves: dict[Any, set[str]] = {}
    real_step, real_run = transitions.check_step, transitions.check_run

    def check_step(before: Any, after: Any, cause: Any) -> None:
        real_step(before, after, cause)
        steps.setdefault((before, after), set()).add(cause)

    def check_run(before: Any, after: Any, cause: Any) -> None:
        real_run(before, after, cause)
        moves.setdefault((before, after), set()).add(cause)

    monkeypatch.setattr("milepost.sagas.draft.check_step", check_step)
    monkeypatch.setattr("milepost.sagas.draft.check_run", check_run)
    searched = {**DEFINITIONS, **dict(_unusual())}
    for definition in searched.values():
        _search(definition)
    assert steps == {arrow: set(causes) for arrow, causes in transitions.STEP_TRANSITIONS.items()}
    assert moves == {arrow: set(causes) for arrow, causes in transitions.RUN_TRANSITIONS.items()}


def _unusual() -> Iterator[tuple[str, Definition]]:
    """Sagas that begin or end oddly, for arrows that others do not take."""
    saga = new_saga()
    saga.wait("it", Delivered, match=lambda v: v.input.id, timeout=HOUR, on_timeout=Then.COMPENSATE)
    yield "wait-first", flow(saga)
    saga = new_saga()
    saga.wait("it", Delivered, match=lambda v: "", timeout=HOUR, on_timeout=Then.PERSON)
    yield "match-first", flow(saga)
    for policy in (Then.RECONCILE, Then.CONTINUE):
        saga = new_saga()
        wait = saga.wait("it", Delivered, match=lambda v: v.input.id, timeout=HOUR, on_timeout=policy)
        if policy is Then.RECONCILE:

            @wait.probe
            async def ask(ctx: Any) -> Probe[Delivered]:
                return Found(Delivered(id="x"))

        saga.wait("bad", Delivered, match=lambda v: "", timeout=HOUR, on_timeout=Then.PERSON)
        yield f"match-after-{policy.name}", flow(saga)
        saga = new_saga()
        wait = saga.wait("it", Delivered, match=lambda v: v.input.id, timeout=HOUR, on_timeout=policy)
        if policy is Then.RECONCILE:
            wait.probe(ask)
        yield f"wait-last-{policy.name}", flow(saga)
        saga = new_saga()
        wait = saga.wait("it", Delivered, match=lambda v: v.input.id, timeout=HOUR, on_timeout=policy)
        if policy is Then.RECONCILE:
            wait.probe(ask)
        add_step(saga, "after", retry=Retry(attempts=1))
        yield f"wait-then-{policy.name}", flow(saga)


def _search(definition: Definition) -> None:
    waiting = [new_run(definition)]
    known = set()
    while waiting:
        run = waiting.pop()
        if (key := seen(run)) in known:
            continue
        known.add(key)
        assert len(known) < 20_000, "the search does not end"
        assert not run.steps or has_live_row(run) == (run.state not in FINAL_RUN_STATES)
        for row in run.steps:
            assert transitions.fits(run.state, row), "decide wrote what it calls impossible"
        for fact, variant, now in _happenings(definition, run):
            decision = decide(definition, variant, fact, now, dice=0.5, limits=LIMITS)
            check_decision(variant, decision)
            if decision.answer == "changed":
                steps = tuple(
                    replace(row, signal=None) for row in decision.run.steps
                )  # never stored with the row
                waiting.append(replace(decision.run, steps=steps))


def _happenings(definition: Definition, run: Run) -> Iterator[tuple[Fact, Run, Any]]:
    if not run.steps:
        yield Start(), run, NOW
    yield Wake(None, 0), run, NOW
    for row in run.steps:
        if row.state in FINAL_STEP_STATES:
            continue
        variants = [run]
        if row.kind is StepKind.WAIT:
            for body in ({"id": "s"}, {"wrong": 1}):
                steps = tuple(replace(s, signal=body) if s.name == row.name else s for s in run.steps)
                variants.append(replace(run, steps=steps))
        yield from itertools.product(facts(row, ages=(0,)), variants, (NOW, NOW + 3 * HOUR))
    for broken in _broken(run):
        yield Wake(None, 0), broken, NOW


def _broken(run: Run) -> Iterator[Run]:
    """The run as no store of ours leaves it: without its last row, or not ended after its last row."""
    with_person = {RunState.MANUAL_REQUIRED, RunState.COMPENSATION_FAILED}
    if run.steps and run.state not in FINAL_RUN_STATES | with_person and run.steps[-1].fence == 0:
        yield replace(run, steps=run.steps[:-1])
    elif run.state in FINAL_RUN_STATES:
        live = replace(run, wake_at=NOW, finished_at=None)
        for state in (RunState.PENDING, RunState.RUNNING, RunState.WAITING, RunState.COMPENSATING):
            yield replace(live, state=state)
