"""Watching a nested world: every commit is compared with the model, and so is the end."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Literal

from milepost.sagas import standing
from milepost.sagas.facts import Act, TryFailed
from milepost.sagas.model import Run, Step
from milepost.schemas.options import Then
from milepost.schemas.states import FINAL_RUN_STATES, FINAL_STEP_STATES, RunState, StepKind, StepState

from tests.support.nested_model import End, Key, Model
from tests.support.nested_outcome import Outcome
from tests.support.nested_world import NestedWorld, Pending

STOPPED = {
    RunState.COMPENSATING,
    RunState.COMPENSATED,
    RunState.COMPENSATION_FAILED,
    RunState.CANCEL_REQUESTED,
    RunState.CANCELLED,
    RunState.FAILED,
}
ENDS: dict[StepState, End] = {
    StepState.SUCCEEDED: "ok",
    StepState.SKIPPED: "skipped",
    StepState.FAILED: "failed",
    StepState.CANCELLED: "given up",
}
NO_LEAVES = {StepKind.UNDO, StepKind.CHOICE, StepKind.LOOP}


def rows_of(run: Run) -> dict[Key, Step]:
    """Return the rows of leaves."""
    return {(s.name, s.iteration): s for s in run.steps if s.kind not in NO_LEAVES}


def stops(run: Run) -> bool:
    """Whether a run goes forward no longer."""
    return run.cause is not None or run.state in STOPPED


@dataclass
class Watch:
    """Compares what was committed with what the model says.

    Attributes:
        reasons: What may follow, once the run has stopped; None while it goes forward.
    """

    world: NestedWorld
    seen: int = 0
    reasons: set[Then] | None = None
    model: Model = field(init=False)

    def __post_init__(self) -> None:
        self.model = Model(self.world.tree)

    def look(self) -> None:
        """Compare everything that was committed since the last look, one commit after the other."""
        for done in self.world.log[self.seen :]:
            self._one(done)
        self.seen = len(self.world.log)
        twice = {key: n for key, n in self.world.outside.effects.items() if n > 1}
        assert not twice, f"more than one effect of one key: {twice}"

    def _one(self, done: Pending) -> None:
        before, after, run = rows_of(done.read), rows_of(done.decision.run), done.decision.run
        assert len(run.steps) == len({(s.name, s.iteration) for s in run.steps}), "a row is there once"
        begun = after.keys() - before.keys()
        ended = [
            row
            for key, row in after.items()
            if row.state in FINAL_STEP_STATES
            and (key not in before or before[key].state not in FINAL_STEP_STATES)
        ]
        for row in sorted(ended, key=lambda row: row.finish_no or 0):
            if (row.name, row.iteration) not in begun:
                self.model.end((row.name, row.iteration), self._how(done, row))
        if self.reasons is not None:
            self._stopping(before, after, begun)
        elif stops(run):
            self.reasons = self._why(done, ended, after)
            assert not {k for k in begun if after[k].state not in FINAL_STEP_STATES}, (
                "it begins and stops at once"
            )
        else:
            self._forward(run, begun, ended)
        if run.state not in FINAL_RUN_STATES:
            assert run.state is standing.state_of(run)

    def _how(self, done: Pending, row: Step) -> End:
        fact = done.fact
        mine = isinstance(fact, TryFailed) and (fact.step, fact.iteration) == (row.name, row.iteration)
        if mine and isinstance(fact, TryFailed) and fact.verdict == "quality" and self.reasons is None:
            return "poor"
        return ENDS[row.state]

    def _stopping(self, before: dict[Key, Step], after: dict[Key, Step], begun: set[Key]) -> None:
        assert not begun, f"{begun} begins although the run is stopping"
        taken = {
            key
            for key, row in after.items()
            if row.state is StepState.RUNNING and before[key].state is not StepState.RUNNING
        }
        assert not taken, f"{taken} is taken by a worker although the run is stopping"

    def _why(self, done: Pending, ended: list[Step], after: dict[Key, Step]) -> set[Then]:
        """Return what is to follow now that the run has stopped, and see that it had to."""
        if isinstance(done.fact, Act) and done.fact.what == "compensate":
            return {Then.COMPENSATE}
        leaves = self.world.leaves
        waited = [row for row in ended if row.kind is StepKind.WAIT and row.state is StepState.CANCELLED]
        if any(leaves[row.name].then is Then.CANCEL and row.code == "WAIT_TIMEOUT" for row in waited):
            return {Then.CANCEL}
        doubted = {key: row for key, row in after.items() if row.state is StepState.UNKNOWN}
        ends: dict[Key, End] = dict.fromkeys(doubted, "failed")
        model = replace(self.model, ends=self.model.ends | ends)
        assert model.stands() in {"failed", "lost"}, f"it stops without a reason: {done.fact}"
        return model.reasons()

    def _forward(self, run: Run, begun: set[Key], ended: list[Step]) -> None:
        given_up = [
            row
            for row in ended
            if row.state is StepState.CANCELLED and not self.model.unwanted((row.name, row.iteration))
        ]
        assert not given_up, f"{given_up} was still wanted"
        wanted = set(self.model.may_begin())
        assert begun == wanted, f"begun {begun}, but the model says {wanted}"
        self.model.begun |= begun
        stands = self.model.stands()
        assert stands in {"open", "ok"}, f"the flow is {stands}, and the run is {run.state}"
        assert (stands == "ok") == (run.state is RunState.SUCCEEDED), f"{stands}, but {run.state}"


def bring_to_its_end(world: NestedWorld) -> None:
    """Faults stop: every message is lost, every worker gone. Looking again alone, and persons, end the run."""
    for worker in list(world.workers):
        world.act(worker, "die_before")
    world.messages, world.pending = [], []
    asked: Counter[Key] = Counter()
    for _ in range(500):
        if world.run.state in FINAL_RUN_STATES:
            break
        for row in world.held()[:1]:
            asked[row.name, row.iteration] += 1
            wish: Literal["retry", "skip"] = "retry" if asked[row.name, row.iteration] == 1 else "skip"
            assert world.person(row, wish) or world.person(row, "skip"), f"a person cannot help {row}"
        wakes = [at for at in (world.run.wake_at, *(s.wake_at for s in world.run.steps)) if at is not None]
        world.pass_time(max(min(wakes, default=world.now) - world.now, timedelta(0)))
        for fact in (*world.swept(), *world.due()):
            world.take(fact)
        while world.messages:
            world.take(world.messages.pop(0))
            for worker in list(world.workers):
                world.act(worker, "ok")
    rows = [(step.name, step.iteration, step.state) for step in world.run.steps]
    assert world.run.state in FINAL_RUN_STATES, f"{world.run.state} with {rows}"


def check_end(watch: Watch) -> None:
    """Assert that state, effects and undos are what the model says."""
    world, run = watch.world, watch.world.run
    Outcome(
        tree=world.tree,
        state=run.state,
        rows=rows_of(run),
        effects=world.outside.effects,
        undone=world.outside.undone,
        order=watch.model.order,
        told=world.told,
    ).check(watch.reasons)
