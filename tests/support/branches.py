"""A run of a nested saga under hand-made facts, named by step and round."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from milepost.sagas.definition import Definition
from milepost.sagas.facts import Act, Claim, Fact, Succeeded, TryFailed, Verdict
from milepost.sagas.model import Decision, Step
from milepost.schemas.options import Retry
from milepost.schemas.states import FINAL_STEP_STATES, RunState, StepKind, StepState

from tests.support.sagas import WORKER, Play, add_step, new_saga

ONCE = Retry(attempts=1)


class Branches(Play):
    """Claims, ends and undoes by name."""

    def row(self, name: str, iteration: str = "") -> Step:
        """Return a row that is there."""
        row = self.run.step(name, iteration)
        assert row is not None, f"{name} has not begun: {self.states()}"
        return row

    def states(self) -> dict[str, StepState]:
        """Return the state of every row outside loops."""
        return {step.name: step.state for step in self.run.steps}

    def state_now(self) -> RunState:
        """Return the run's state, whatever it was before."""
        return self.run.state

    def open(self) -> set[str]:
        """Return the names of the live rows."""
        return {step.name for step in self.run.steps if step.state not in FINAL_STEP_STATES}

    def fact(self, fact: Fact) -> Decision:
        """Decide on a fact that must change something."""
        decision = self.send(fact)
        assert decision.answer == "changed", decision.reason
        return decision

    def begin(self, name: str, iteration: str = "") -> None:
        """Claim a step."""
        self.fact(Claim(name, WORKER, iteration))

    def end(
        self,
        name: str,
        iteration: str = "",
        *,
        result: Any = None,
        verdict: Verdict | None = None,
        code: str = "NO",
    ) -> None:
        """Let a claimed step succeed, or fail with a verdict."""
        fence = self.row(name, iteration).fence
        if verdict is None:
            self.fact(Succeeded(name, fence, result or {"id": name}, iteration))
        else:
            self.fact(TryFailed(name, fence, verdict, code, "no", iteration=iteration))

    def ok(self, name: str, iteration: str = "", result: Any = None) -> None:
        """Let a step succeed."""
        self.begin(name, iteration)
        self.end(name, iteration, result=result)

    def undo(self) -> str:
        """Do the undo that is next, and return its name."""
        (row,) = [s for s in self.run.steps if s.kind is StepKind.UNDO and s.state not in FINAL_STEP_STATES]
        self.begin(row.name, row.iteration)
        self.fact(Succeeded(row.name, self.row(row.name, row.iteration).fence, None, row.iteration))
        return row.name

    def act(self, what: Any, step: str | None, result: Any = None, *, undo: bool = False) -> None:
        """Let a person say something."""
        self.fact(Act(what, by="ann", reason="because", step=step, result=result, undo=undo))


def branching(make: Callable[..., tuple[Any, ...]], names: str) -> Branches:
    """Return a started run of a saga with a step for each letter, each with an undo, tried once."""
    saga = new_saga()
    saga.flow(*make(*(add_step(saga, name, undo=True, retry=ONCE) for name in names)))
    definition: Definition = saga.definition
    return Branches(definition)
