"""Dense plays: many faults in a row, in which every call that has left arrives, late or later."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from milepost.schemas.options import Repeat, Retry

from tests.support.drawn import NODES, build
from tests.support.ending import bring_to_its_end, check_end
from tests.support.sagas import SECOND, add_step, flow, new_saga
from tests.support.world import World

HOWS: list[Any] = ["ok", "late", "lost", "zombie", "die_after", "not_sent"]
ANY_HOW: list[Any] = [*HOWS, "ok", "ok", "ok", "fatal", "nothing", "retry", "die_before", "hand_back"]
MOVES = st.one_of(
    st.tuples(st.just("message"), st.integers(0, 2)),
    st.tuples(st.just("message"), st.integers(0, 2)),
    st.tuples(st.just("worker"), st.integers(0, 100)),
    st.tuples(st.just("worker"), st.integers(0, 100)),
    st.tuples(st.just("time"), st.sampled_from([1, 31, 59, 90, 600])),
    st.tuples(st.just("look"), st.just(0)),
    st.tuples(st.just("thaw"), st.integers(0, 2)),
    st.tuples(st.just("land"), st.integers(0, 2)),
    st.tuples(st.just("signal"), st.just(0)),
)


def move(world: World, what: str, choice: int, hows: list[Any]) -> None:
    """Let one actor do its next thing, if it has any."""
    if what == "message" and world.messages:
        world.take(world.messages.pop(choice % len(world.messages)))
    elif what == "worker" and world.workers:
        world.act(world.workers[-1], hows[choice % len(hows)], inline=choice % 3 == 0)
    elif what == "time":
        world.pass_time(choice * SECOND)
    elif what == "look":
        for fact in world.swept():
            world.apply(fact)
        world.messages += world.due()
    elif what == "signal":
        world.signal()
    elif what == "thaw" and world.late:
        world.thaw(choice % len(world.late))
    elif what == "land" and world.ledger.flights:
        world.ledger.land(choice % len(world.ledger.flights))


@settings(max_examples=400, deadline=None)
@given(st.lists(MOVES, min_size=10, max_size=50), st.integers(1, 3), st.booleans())
def test_the_effect_happens_once_whatever_freezes(
    moves: list[tuple[str, int]], attempts: int, undo: bool
) -> None:
    saga = new_saga()
    add_step(
        saga, "charge", Repeat.ASK_FIRST, probe=True, undo=undo, retry=Retry(attempts=attempts, within=None)
    )
    world = World(flow(saga), all_arrive=True)
    for what, choice in moves:
        move(world, what, choice, HOWS)
        assert world.ledger.effects["charge"] <= 1
    bring_to_its_end(world)
    assert world.ledger.effects["charge"] <= 1
    check_end(world)


@settings(max_examples=300, deadline=None)
@given(NODES, st.lists(MOVES, min_size=10, max_size=60), st.booleans())
def test_any_saga_ends_as_it_says(
    nodes: list[dict[str, Any]], moves: list[tuple[str, int]], irreversible: bool
) -> None:
    world = World(build(nodes, irreversible=irreversible), all_arrive=True)
    for what, choice in moves:
        move(world, what, choice, ANY_HOW)
    bring_to_its_end(world)
    assert not [key for key, n in world.ledger.effects.items() if n > 1]
    check_end(world)
