"""Persons act and cancel at any moment of a run in a world of trouble: it ends, and is undone when that was asked."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, event, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule
from milepost.sagas.facts import Act
from milepost.sagas.model import Decision, Step
from milepost.schemas.options import Repeat
from milepost.schemas.states import FINAL_RUN_STATES, RunState, StepKind, StepState

from tests.property.test_world import Actors
from tests.support.drawn import NODES, THEN, build, step_nodes
from tests.support.ending import WITH_PERSON, bring_to_its_end, to_undo
from tests.support.store import essence
from tests.support.world import World

UNDONE = st.lists(step_nodes(list(Repeat), ["plain", "plain", "blind", "none"], THEN), min_size=2, max_size=4)
WAY = st.lists(
    st.sampled_from(["ok", "ok", "ok", "ok", "fatal", "lost", "retry", "late"]), min_size=2, max_size=6
)
ACTS = st.sampled_from(
    ["retry", "retry", "skip", "mark_succeeded", "compensate", "resume", "cancel", "cancel"]
)
HELD = {StepState.MANUAL_REQUIRED, StepState.COMPENSATION_FAILED}


class Persons(Actors):
    """Any saga, and persons who say nothing untrue."""

    @initialize(nodes=st.one_of(UNDONE, NODES), way=WAY, irreversible=st.booleans(), all_arrive=st.booleans())
    def begin(self, nodes: list[Any], way: list[Any], irreversible: bool, all_arrive: bool) -> None:
        """Make the run, and let it get somewhere before anybody acts."""
        self.world = World(build(nodes, irreversible=irreversible), all_arrive=all_arrive)
        for how in way:
            while self.world.messages and not self.world.workers:
                self.world.take(self.world.messages.pop(0))
            if self.world.workers:
                self.world.act(self.world.workers[0], how)

    @precondition(lambda self: self.world.run.state not in FINAL_RUN_STATES)
    @rule(undo=st.booleans())
    def cancel(self, undo: bool) -> None:
        """Somebody cancels the run."""
        self.say("cancel", self.world.run.steps[-1], undo=undo)

    @precondition(lambda self: self.world.run.state in WITH_PERSON)
    @rule(what=ACTS, undo=st.booleans())
    def asked(self, what: Any, undo: bool) -> None:
        """Whoever is asked answers."""
        self.say(what, next(step for step in self.world.run.steps if step.state in HELD), undo=undo)

    def say(self, what: Any, step: Step, *, undo: bool = False) -> Decision | None:
        """Act, truthfully: what is marked is there, and what is said not to have happened never will."""
        ledger, name = self.world.ledger, step.undo_of or step.name
        there = name in ledger.undone if step.kind is StepKind.UNDO else ledger.effects[name] == 1
        if what == "mark_succeeded" and not there and step.kind is not StepKind.WAIT:
            return None
        absent = not ledger.effects[name] and not any(flight.key == name for flight in ledger.flights)
        result = None if step.kind in {StepKind.UNDO, StepKind.TX} else {"id": "by hand"}
        named = what in {"retry", "skip", "mark_succeeded"}
        sure = absent and step.state in HELD
        act = Act(what, "ann", "why", step.name if named else None, result, undo=undo, did_not_happen=sure)
        before = self.world.run.state
        decision = self.world.apply(act)
        event(f"{what} in {before}: {decision.answer}")
        return decision

    @invariant()
    def never_is_called_once(self) -> None:
        """A person may have it done again; then it had not happened."""

    @invariant()
    def nothing_begins_once_cancelling_was_asked_for(self) -> None:
        asked = False
        for done in self.world.log if hasattr(self, "world") else []:
            claimed = done.decision.claimed
            if asked and claimed is not None:
                assert claimed.state is not StepState.RUNNING, f"{claimed.name} began in a cancelled run"
            asked = asked or (isinstance(done.fact, Act) and done.fact.what == "cancel")

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        for _ in range(30):
            bring_to_its_end(self.world)
            if self.world.run.state in FINAL_RUN_STATES:
                break
            self.last_word()
        assert self.world.run.state in FINAL_RUN_STATES
        self.never_two_effects_of_one_key()
        check(self.world)

    def last_word(self) -> None:
        """Whoever is asked lets the run come to its end."""
        step = next(step for step in self.world.run.steps if step.state in HELD)
        self.world.ledger.land_all()
        for what in ("mark_succeeded", "skip"):
            if (said := self.say(what, step)) is not None and said.answer == "changed":
                return
        raise AssertionError(f"nobody can let {step} go on")


def check(world: World) -> None:
    """Assert that what was done, what was undone and what the run says are the same."""
    run, ledger = world.run, world.ledger
    assert essence(run) == essence(world.folded())
    assert all(step.wake_at is None for step in run.steps)
    for step in [step for step in run.steps if step.kind in {StepKind.STEP, StepKind.TX}]:
        if step.state is StepState.SUCCEEDED:
            assert ledger.effects[step.name] == 1, f"{step.name} says SUCCEEDED without its effect"
        if step.state in {StepState.FAILED, StepState.CANCELLED} and not step.doubt:
            assert ledger.effects[step.name] == 0, f"{step.name} says {step.state} and took effect"
    undos = [step for step in run.steps if step.kind is StepKind.UNDO]
    assert {step.undo_of for step in undos if step.state is StepState.COMPENSATED} <= set(ledger.undone)
    skipped = {step.undo_of for step in undos if step.state is StepState.CANCELLED}
    if run.state is RunState.COMPENSATED:
        open_ends = [step.name for step in run.steps if step.state is StepState.FAILED and step.doubt]
        undoable = {
            node.name for node in world.definition.nodes if node.undo is not None and not node.undo.blind
        }
        assert not undoable & set(open_ends), (
            f"{open_ends} may have happened, and were neither settled nor undone"
        )
        undone = [name for name in ledger.undone if name not in skipped]
        assert undone == [name for name in to_undo(world) if name not in skipped]
    elif run.state is not RunState.FAILED:
        assert not ledger.undone, f"undone in a run that is {run.state}"
    if cancelled := [d.fact for d in world.log if isinstance(d.fact, Act) and d.fact.what == "cancel"]:
        event(f"cancelled, undo={cancelled[-1].undo}: {run.state}")
        # Without undo it may be turned round later, by the person that it then stood in front of.
        turned = any(isinstance(d.fact, Act) and d.fact.what == "compensate" for d in world.log)
        undoes = cancelled[-1].undo or turned
        assert run.state is RunState.CANCELLED or (
            undoes and run.state in {RunState.COMPENSATED, RunState.FAILED}
        )
        assert not (undoes and run.state is RunState.CANCELLED and to_undo(world)), "undo was asked for"


Persons.TestCase.settings = settings(
    max_examples=150, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck)
)
TestActs = Persons.TestCase
