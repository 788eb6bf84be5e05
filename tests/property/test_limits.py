"""A run whose time is limited, where everything may go wrong: it always ends, and nothing begins afterwards."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from hypothesis import HealthCheck, event, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant
from milepost.sagas import timing
from milepost.schemas.states import RunState, StepKind, StepState

from tests.property.test_world import Actors
from tests.support.drawn import NODES, build
from tests.support.sagas import MINUTE, NOW
from tests.support.world import World

SPANS = [timedelta(0), MINUTE, 5 * MINUTE, 10 * MINUTE, timedelta(hours=1), timedelta(hours=3)]
LIMITED = st.one_of(
    st.tuples(st.sampled_from(SPANS), st.none()),
    st.tuples(st.none(), st.sampled_from(SPANS[1:])),
    st.tuples(st.sampled_from(SPANS), st.sampled_from(SPANS[1:])),
)


class Limited(Actors):
    """Any saga with a deadline, an active time, or both."""

    @initialize(nodes=NODES, limits=LIMITED, irreversible=st.booleans(), all_arrive=st.booleans())
    def begin(self, nodes: list[dict[str, Any]], limits: Any, irreversible: bool, all_arrive: bool) -> None:
        """Make the run."""
        deadline, active = limits
        definition = replace(build(nodes, irreversible=irreversible), active_timeout=active)
        self.world = World(definition, deadline=deadline, all_arrive=all_arrive)

    @invariant()
    def no_step_begins_when_the_time_is_over(self) -> None:
        for done in self.world.log if hasattr(self, "world") else []:
            claimed = done.decision.claimed
            if claimed is None or claimed.kind is StepKind.UNDO or claimed.state is not StepState.RUNNING:
                continue
            before = done.read.deadline_at
            assert before is None or done.at < before, f"{claimed.name} began after the deadline"
            used = timing.active_for(done.read, done.at)
            active = self.world.definition.active_timeout
            assert active is None or used < active, f"{claimed.name} began after {used} of {active}"

    @invariant()
    def no_step_begins_in_a_run_that_stops(self) -> None:
        stopped = False
        for done in self.world.log if hasattr(self, "world") else []:
            new = [s for s in done.decision.changed if done.read.step(s.name) is None]
            assert not stopped or all(s.kind is StepKind.UNDO for s in new), (
                f"{new} after the run had stopped"
            )
            stopped = stopped or done.decision.run.cause is not None

    def teardown(self) -> None:
        super().teardown()
        if not hasattr(self, "world"):
            return
        run = self.world.run
        event(run.state.value)
        if run.state is RunState.EXPIRED:
            assert run.cause in {"DEADLINE", "ACTIVE_TIMEOUT"}
            assert run.finished_at is not None
            assert run.cause != "DEADLINE" or run.finished_at >= NOW + (self.world.deadline or timedelta(0))


Limited.TestCase.settings = settings(
    max_examples=80, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
TestLimited = Limited.TestCase
