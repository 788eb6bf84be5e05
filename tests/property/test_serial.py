"""Many messages for one run, taken by several readers at once: the outcome is that of some serial order."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st
from milepost.sagas.definition import Definition
from milepost.sagas.facts import Claim, Fact, Signalled, Start, Succeeded, Wake
from milepost.schemas.options import Repeat, Then
from milepost.schemas.states import RunState, StepKind, StepState

from tests.support.sagas import Delivered, add_step, add_tx, flow, new_saga
from tests.support.store import Pending, Store, essence

READERS = 3


def shop() -> Definition:
    saga = new_saga()
    add_step(saga, "reserve", undo=True)
    add_step(saga, "charge", Repeat.ASK_FIRST, probe=True, undo=True)
    saga.wait(
        "delivered",
        Delivered,
        match=lambda v: v.input.id,
        timeout=timedelta(days=1),
        on_timeout=Then.COMPENSATE,
    )
    add_tx(saga, "close")
    return flow(saga)


DEFINITION = shop()


def on_the_way(store: Store, reader: int) -> list[Fact]:
    """Everything that some partition may hold for the run right now, right, old or repeated."""
    worker = UUID(int=reader + 1)
    facts: list[Fact] = [Start(), Wake(None, 0)]
    for step in store.run.steps:
        facts += [
            Claim(step.name, worker),
            Wake(step.name, step.generation),
            Wake(step.name, step.generation - 1),
        ]
        if step.worker == worker:
            facts.append(
                Succeeded(step.name, step.fence, {"id": step.name} if step.name != "close" else None)
            )
        if step.state is StepState.WAITING:
            facts.append(Signalled(step.name, step.generation, {"id": "o-1"}))
    return facts


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, READERS - 1), st.integers(0, 40), st.booleans()), max_size=80))
def test_the_outcome_is_the_serial_fold_of_what_was_committed(schedule: list[tuple[int, int, bool]]) -> None:
    """Readers load, pause between load and save, and lose against each other (scenario 42)."""
    store = Store(DEFINITION)
    open_: dict[int, Pending] = {}
    conflicts = 0
    for reader, choice, twice in schedule:
        pending = open_.pop(reader, None)
        if pending is None:
            facts = on_the_way(store, reader)
            open_[reader] = store.begin(facts[choice % len(facts)])
            continue
        if not store.commit(pending):
            conflicts += 1
            store.apply(pending.fact)
        if twice:  # the answer of the commit was lost, and the message comes again
            store.apply(pending.fact)
    for reader in list(open_):
        pending = open_.pop(reader)
        if not store.commit(pending):
            store.apply(pending.fact)
    assert essence(store.run) == essence(store.folded())
    check_nothing_happened_twice(store)


def check_nothing_happened_twice(store: Store) -> None:
    """A conflict neither repeats a claim nor uses up a try; a repeated start makes no second row."""
    claimed = [done.decision.claimed for done in store.log if done.decision.claimed is not None]
    fences = [(row.name, row.fence) for row in claimed]
    assert len(fences) == len(set(fences)), "two workers under one fence"
    for step in store.run.steps:
        tries = [row for row in claimed if row.name == step.name and row.state is not StepState.RECONCILING]
        if step.kind is not StepKind.WAIT:
            assert step.attempt == len(tries), f"{step.name}: only claims count as tries"
    names = [step.name for step in store.run.steps]
    assert len(names) == len(set(names))
    finishes = [step.finish_no for step in store.run.steps if step.finish_no is not None]
    assert len(finishes) == len(set(finishes))
    assert store.run.version == len(store.log)


@given(st.permutations(["timer", "signal"]), st.booleans(), st.booleans())
def test_timer_and_completion_at_one_instant(order: list[str], both_loaded: bool, repeated: bool) -> None:
    """Both read before either commits; exactly one wins by its version, the other decides anew (scenario 32)."""
    store = Store(DEFINITION)
    for name in ("reserve", "charge"):
        fence = store.apply(Claim(name, UUID(int=1))).run.step(name)
        assert fence is not None
        store.apply(Succeeded(name, fence.fence, {"id": name}))
    store.now += timedelta(days=1)
    wait = store.run.step("delivered")
    assert wait is not None
    store.signal()
    facts: dict[str, Fact] = {
        "timer": Wake("delivered", wait.generation),
        "signal": Signalled("delivered", wait.generation, {"id": "s-1"}),
    }
    if both_loaded:
        pendings = [store.begin(facts[name]) for name in order]
        assert store.commit(pendings[0])
        assert not store.commit(pendings[1]), "the loser must not commit what it decided on an older run"
        store.apply(pendings[1].fact)
    else:
        for name in order:
            store.apply(facts[name])
    if repeated:
        for fact in facts.values():
            assert store.apply(fact).answer == "ignored"
    after = store.run.step("delivered")
    assert after is not None
    assert (after.state, store.run.state) == (StepState.SUCCEEDED, RunState.RUNNING), "the signal was there"
    assert not [step for step in store.run.steps if step.undo_of is not None]
    assert essence(store.run) == essence(store.folded())
