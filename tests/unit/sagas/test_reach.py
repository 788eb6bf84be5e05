"""All that can happen in all sagas is what the tables of legal transitions say, no less and no more."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from milepost import Budget
from milepost.sagas import questions, transitions
from milepost.sagas.decide import decide
from milepost.sagas.definition import Definition
from milepost.sagas.facts import Act, Claim, Fact, Probed, Start, TryFailed, Wake
from milepost.sagas.model import Child, Fan, Run, Step
from milepost.sagas.standing import in_part, partly_done
from milepost.sagas.words import ACTIVE_TIMEOUT, CANCELLED, CANCELLED_NO_UNDO, CHILD_STOPPING, DEADLINE
from milepost.schemas.options import Found, Probe, Repeat, Retry, Then
from milepost.schemas.states import FINAL_RUN_STATES, FINAL_STEP_STATES, RunState, StepKind

from tests.support.allsagas import DEFINITIONS, acted_on, acts, answers, approved, facts
from tests.support.besides import plays
from tests.support.nestedsagas import nested
from tests.support.sagas import (
    HOUR,
    LIMITS,
    NOW,
    OTHER,
    Delivered,
    add_step,
    check_decision,
    flow,
    has_live_row,
    new_run,
    new_saga,
)

#: Causes that a run that stops goes on differently by.
_STOPS = {DEADLINE, ACTIVE_TIMEOUT, CANCELLED, CANCELLED_NO_UNDO}

#: All that may become of a child.
_CHILDREN = (Child("c", "k", "SUCCEEDED"), Child("c", "k", "FAILED"), Child(code="NO"))


#: Ways in which two items stand: both under way, both well, one of each, both failed, stopped after one, and before.
_ITEMS = ((2, 2, 0, 0), (2, 0, 2, 0), (2, 0, 1, 1), (2, 0, 0, 2), (2, 0, 1, 0), (2, 0, 0, 0))


def seen(run: Run) -> tuple[Any, ...]:
    """What of a run decides its future, so that the search ends."""
    ends = [
        (s.name, s.iteration, s.state, s.doubt, partly_done(s))
        for s in run.steps
        if s.state in FINAL_STEP_STATES
    ]
    live = [
        (
            s.name,
            s.iteration,
            s.state,
            s.doubt,
            s.doubt_at == NOW,
            min(s.attempt, 3),
            s.code == CHILD_STOPPING,
            partly_done(s),
        )
        for s in run.steps
        if s.state not in FINAL_STEP_STATES
    ]
    asked = [(q.open, len(q.given), q.hash) for s in run.steps if (q := questions.read(s)) is not None]
    cause = run.cause if run.cause in _STOPS else run.cause is None
    return (run.state, cause, tuple(ends), tuple(live), tuple(asked), in_part(run))


# Minutes of nothing but computing, which a machine with little time for it makes many.
@pytest.mark.timeout(1500)
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
    searched = {**DEFINITIONS, **dict(_unusual()), **dict(nested())}
    for definition in searched.values():
        _search(definition, new_run(definition), (NOW, NOW + 3 * HOUR))
        # Time goes on once, past the deadline.
        late = replace(new_run(definition), deadline_at=NOW + 2 * HOUR)
        _search(definition, late, (NOW,), (NOW + 3 * HOUR,))
        _search(definition, replace(new_run(definition), deadline_at=NOW), (NOW,))
    for definition in (*acted_on(), *approved(), *dict(nested()).values()):
        late = replace(new_run(definition), deadline_at=NOW + 2 * HOUR)
        for begun in (late, new_run(definition)):
            _search(definition, begun, (NOW,), (NOW + 3 * HOUR,), persons=True)
    assert list(plays())  # what only nested flows come to, which is too much to search
    assert steps == {arrow: set(causes) for arrow, causes in transitions.STEP_TRANSITIONS.items()}
    assert moves == {arrow: set(causes) for arrow, causes in transitions.RUN_TRANSITIONS.items()}


def _unusual() -> Iterator[tuple[str, Definition]]:
    """Sagas that begin or end oddly, for arrows that others do not take."""
    saga = new_saga()
    add_step(saga, "it", Repeat.NEVER, undo=True, retry=Retry(attempts=1))
    yield "never-alone", flow(saga)
    saga = new_saga()
    add_step(saga, "it", undo=True, retry=Retry(attempts=1), window=HOUR)
    yield "key-forgotten", flow(saga)
    saga = new_saga()
    saga.budget = Budget(steps=1)
    add_step(saga, "it", retry=Retry(attempts=1))
    add_step(saga, "after", retry=Retry(attempts=1))
    yield "budget", flow(saga)
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


def _search(definition: Definition, begun: Run, *ages: tuple[datetime, ...], persons: bool = False) -> None:
    """Search what can happen at the instants of the first age, and, from wherever that led, at the next's."""
    waiting = [(begun, 0)]
    known = set()
    while waiting:
        run, age = waiting.pop()
        if (key := (age, seen(run))) in known:
            continue
        known.add(key)
        assert len(known) < 20_000, "the search does not end"
        assert not run.steps or has_live_row(run) == (run.state not in FINAL_RUN_STATES)
        for row in run.steps:
            assert transitions.fits(run.state, row), f"impossible: {row.name} {row.state} in {run.state}"
        if age + 1 < len(ages) and run.state not in FINAL_RUN_STATES:
            waiting.append((run, age + 1))
        late = set()
        # As a list: a variant that is gone could lend its id to another one.
        for fact, variant, now in list(_happenings(definition, run, ages[age], persons)):
            kind = (type(fact), getattr(fact, "step", None), getattr(fact, "iteration", ""), id(variant), now)
            if kind in late:
                continue
            decision = decide(definition, variant, fact, now, dice=0.5, limits=LIMITS)
            check_decision(variant, decision)
            if decision.answer == "changed":
                waiting.append((_stored(decision.run), age))
            elif isinstance(fact, Probed | TryFailed):
                late.add(kind)  # whatever else it may say


def _stored(run: Run) -> Run:
    """The run as it is read again: a signal is never stored with its row."""
    if all(row.signal is None and row.child is None and row.fan is None for row in run.steps):
        return run
    return replace(run, steps=tuple(replace(row, signal=None, child=None, fan=None) for row in run.steps))


def _happenings(
    definition: Definition, run: Run, instants: tuple[datetime, ...], persons: bool
) -> Iterator[tuple[Fact, Run, datetime]]:
    if not run.steps:
        yield Start(), run, instants[0]
    if not run.steps and persons:
        yield Act("cancel", "ann", "because"), run, instants[0]
    yield Wake(None, 0), run, instants[0]
    for row in run.steps:
        if row.state in FINAL_STEP_STATES:
            continue
        variants = [run, *_matched(run, row)]
        yield from itertools.product(facts(row, ages=(0,)), variants, instants)
        yield from ((fact, variant, instants[0]) for fact, variant in _answered(run, row, persons))
        if persons and row.name != "before":
            yield from itertools.product(acts(row.name), variants, instants[:1])
    for broken in _broken(run, persons):
        if broken.state is not RunState.MANUAL_REQUIRED:  # only a person lets that go on
            yield Wake(None, 0), broken, instants[0]
        if persons or run.deadline_at is None:
            yield Act("resume", "ann", "because"), broken, instants[0]


def _answered(run: Run, row: Step, persons: bool) -> Iterator[tuple[Fact, Run]]:
    """What persons say to a question, and a claim; also after what it is about has changed."""
    elsewhere = _elsewhere(run)
    if persons and row.asked is not None:
        yield from itertools.product(answers(row), (run, elsewhere))
    if any(step.asked is not None for step in run.steps):
        yield Claim(row.name, OTHER, row.iteration), elsewhere


def _elsewhere(run: Run) -> Run:
    """The run after somebody has changed its input, as a migration to another version does."""
    return replace(run, input={"id": "o-2"})


def _matched(run: Run, row: Step) -> Iterator[Run]:
    """The run with a signal that its wait has been matched with, one that can be read and one that cannot."""
    for child in _CHILDREN if row.kind is StepKind.CHILD else ():
        yield replace(
            run, steps=tuple(replace(s, child=child) if s.name == row.name else s for s in run.steps)
        )
    for numbers in _ITEMS if row.kind is StepKind.EACH and row.fence else ():
        fan = Fan(row.attempt, 2, *numbers)
        yield replace(run, steps=tuple(replace(s, fan=fan) if s.name == row.name else s for s in run.steps))
    for body in ({"id": "s"}, {"wrong": 1}) if row.kind is StepKind.WAIT else ():
        yield replace(
            run, steps=tuple(replace(s, signal=body) if s.name == row.name else s for s in run.steps)
        )


def _broken(run: Run, persons: bool) -> Iterator[Run]:
    """The run as no store of ours leaves it: without its last row, or not ended after its last row."""
    with_person = {RunState.MANUAL_REQUIRED, RunState.COMPENSATION_FAILED}
    if run.steps and run.state not in FINAL_RUN_STATES | with_person and run.steps[-1].fence == 0:
        yield replace(run, steps=run.steps[:-1])
    elif run.state in FINAL_RUN_STATES:
        live = replace(run, wake_at=NOW, finished_at=None)
        stopped = (RunState.CANCEL_REQUESTED, RunState.MANUAL_REQUIRED) if persons else ()
        for state in (RunState.PENDING, RunState.RUNNING, RunState.WAITING, RunState.COMPENSATING, *stopped):
            forward = state in {RunState.PENDING, RunState.RUNNING, RunState.WAITING}
            if not (forward and any(row.kind is StepKind.UNDO for row in run.steps)):
                yield replace(live, state=state, cause=None if forward else live.cause)
