"""One run of any saga in a world where messages get lost, workers die or freeze, and answers never come."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from milepost.schemas.options import Repeat
from milepost.schemas.states import FINAL_RUN_STATES, RunState

from tests.support.drawn import NODES, build
from tests.support.ending import bring_to_its_end, check_end
from tests.support.sagas import MINUTE, SECOND
from tests.support.world import World

CALLS = ["ok", "lost", "late", "nothing", "retry", "not_sent", "fatal"]
DEATHS = ["die_before", "die_after", "zombie", "hand_back"]
HOWS = st.sampled_from(["ok", "ok", "ok", *CALLS, *DEATHS])
PAUSES = st.sampled_from(
    [SECOND, 10 * SECOND, 31 * SECOND, 59 * SECOND, MINUTE, 5 * MINUTE, timedelta(hours=2)]
)


class Actors(RuleBasedStateMachine):
    """Any actor may do its next thing at any time, or die."""

    world: World

    def __init__(self) -> None:
        super().__init__()
        self.fences: dict[str, tuple[int, int]] = {}

    # --- messages -------------------------------------------------------------------------------------

    @precondition(lambda self: self.world.messages)
    @rule(data=st.data(), what=st.sampled_from(["take", "take", "take", "keep", "lose", "slow"]))
    def message(self, data: st.DataObject, what: str) -> None:
        """Take any message, lose it, keep it so that it comes again, or take long over it."""
        place = data.draw(st.integers(0, len(self.world.messages) - 1))
        message = self.world.messages[place] if what == "keep" else self.world.messages.pop(place)
        if what == "slow" and not isinstance(message, str):
            self.world.pending.append(self.world.begin(message))
        elif what != "lose":
            self.world.take(message)

    @precondition(lambda self: self.world.messages)
    @rule(
        hows=st.lists(st.sampled_from(["ok", "ok", "ok", "fatal", "zombie", "lost"]), min_size=1, max_size=4)
    )
    def stride(self, hows: list[Any]) -> None:
        """Let messages and workers go on for a while without trouble from outside."""
        for how in hows:
            if self.world.messages:
                self.world.take(self.world.messages.pop(0))
            if self.world.workers:
                self.world.act(self.world.workers[0], how)

    @precondition(lambda self: self.world.pending)
    @rule(crash=st.booleans())
    def commit_slowly(self, crash: bool) -> None:
        """Commit what was decided long ago; decide again when somebody else was first."""
        pending = self.world.pending.pop(0)
        if not crash and not self.world.commit(pending):
            self.world.apply(pending.fact)

    @rule()
    def signal(self) -> None:
        self.world.signal()

    # --- time -----------------------------------------------------------------------------------------

    @rule(by=PAUSES, wake=st.booleans(), sweep=st.booleans())
    def time_passes(self, by: timedelta, wake: bool, sweep: bool) -> None:
        """The waker and the sweep look around, or are too slow this time."""
        self.world.pass_time(by)
        for fact in self.world.swept() if sweep else []:
            self.world.apply(fact)
        self.world.messages += self.world.due() if wake else []

    # --- workers --------------------------------------------------------------------------------------

    @precondition(lambda self: self.world.workers)
    @rule(data=st.data(), how=HOWS, inline=st.booleans())
    def work(self, data: st.DataObject, how: Any, inline: bool) -> None:
        self.world.act(data.draw(st.sampled_from(self.world.workers)), how, inline=inline)

    @precondition(lambda self: self.world.workers)
    @rule(how=st.sampled_from(["die_before", "die_after", "zombie"]))
    def die_and_be_found(self, how: Any) -> None:
        """A worker dies or freezes; its lease ends, and its row is taken from it."""
        self.world.act(self.world.workers[0], how)
        self.world.pass_time(31 * SECOND)
        for fact in self.world.swept():
            self.world.apply(fact)

    @precondition(lambda self: self.world.probers())
    @rule(first=PAUSES, land=st.booleans(), second=PAUSES)
    def prober_freezes(self, first: timedelta, land: bool, second: timedelta) -> None:
        """A prober asks, freezes, and tells the answer when it may no longer be true."""
        self.world.pass_time(first)
        if self.world.probers():
            self.world.act(self.world.probers()[0], "zombie")
            if land and self.world.ledger.flights:
                self.world.ledger.land(0)
            self.world.pass_time(second)
            self.world.thaw(len(self.world.late) - 1)

    @precondition(lambda self: self.world.run.state is RunState.WAITING)
    @rule(signal_first=st.booleans())
    def timer_meets_signal(self, signal_first: bool) -> None:
        """Both are under way at one instant, and either is heard first."""
        if signal_first:
            self.world.signal()
        self.world.pass_time(10 * MINUTE)
        self.world.messages = [*self.world.due(), *self.world.messages]
        if not signal_first:
            self.world.signal()

    @precondition(lambda self: self.world.late)
    @rule(data=st.data())
    def thaw(self, data: st.DataObject) -> None:
        """A frozen worker says what it has to say."""
        self.world.thaw(data.draw(st.integers(0, len(self.world.late) - 1)))

    @precondition(lambda self: self.world.ledger.flights)
    @rule(data=st.data())
    def land(self, data: st.DataObject) -> None:
        """A call that everybody had given up arrives."""
        self.world.ledger.land(data.draw(st.integers(0, len(self.world.ledger.flights) - 1)))

    # --- what always holds ----------------------------------------------------------------------------

    @invariant()
    def never_two_effects_of_one_key(self) -> None:
        if hasattr(self, "world"):
            twice = {key: n for key, n in self.world.ledger.effects.items() if n > 1}
            assert not twice, twice

    @invariant()
    def never_is_called_once(self) -> None:
        if hasattr(self, "world"):
            for node in self.world.definition.nodes:
                assert node.repeat is not Repeat.NEVER or self.world.ledger.calls[node.name] <= 1

    @invariant()
    def fences_and_generations_only_grow(self) -> None:
        if hasattr(self, "world"):
            for step in self.world.run.steps:
                fence, generation = self.fences.get(step.name, (0, 0))
                assert step.fence >= fence
                assert step.generation >= generation
                self.fences[step.name] = (step.fence, step.generation)

    @invariant()
    def at_most_one_row_is_live(self) -> None:
        if hasattr(self, "world"):
            live = [step for step in self.world.run.steps if step.wake_at is not None]
            assert len(live) == (0 if self.world.run.state in FINAL_RUN_STATES else 1)

    def teardown(self) -> None:
        if hasattr(self, "world"):
            bring_to_its_end(self.world)
            self.never_two_effects_of_one_key()
            check_end(self.world)


class Machine(Actors):
    """Any saga."""

    @initialize(nodes=NODES, doomed=st.booleans(), irreversible=st.booleans(), all_arrive=st.booleans())
    def begin(self, nodes: list[dict[str, Any]], doomed: bool, irreversible: bool, all_arrive: bool) -> None:
        """Make the run; of a doomed one the last step is always refused."""
        self.world = World(build(nodes, irreversible=irreversible), all_arrive=all_arrive)
        self.world.doomed = f"n{len(nodes) - 1}" if doomed else ""


Machine.TestCase.settings = settings(
    max_examples=300, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestWorld = Machine.TestCase
