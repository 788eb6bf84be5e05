"""Bringing a simulated world to its end, and what must hold there."""

from __future__ import annotations

from datetime import timedelta

from milepost.schemas.states import FINAL_RUN_STATES, RunState, StepKind, StepState

from tests.support.store import essence
from tests.support.world import World

WITH_PERSON = frozenset({RunState.MANUAL_REQUIRED, RunState.COMPENSATION_FAILED})


def bring_to_its_end(world: World) -> None:
    """Faults stop: every message is lost, every worker gone. Looking again alone brings the run to an end."""
    for worker in list(world.workers):
        world.act(worker, "die_before")
    world.messages, world.pending = [], []
    for _ in range(300):
        if world.run.state in FINAL_RUN_STATES | WITH_PERSON:
            break
        wakes = [at for at in (world.run.wake_at, *(s.wake_at for s in world.run.steps)) if at is not None]
        world.pass_time(max(min(wakes) - world.now, timedelta(0)))
        for fact in (*world.swept(), *world.due()):
            world.take(fact)
        while world.messages:
            world.take(world.messages.pop(0))
            for worker in list(world.workers):
                world.act(worker, "ok")
    if world.all_arrive:
        world.ledger.land_all()
    rows = [(step.name, step.state) for step in world.run.steps]
    assert world.run.state in FINAL_RUN_STATES | WITH_PERSON, f"{world.run.state} with {rows}"


def check_end(world: World) -> None:
    """Assert that what was done, what was undone and what the run says are the same."""
    run, ledger = world.run, world.ledger
    assert essence(run) == essence(world.folded()), "what came of it is the serial fold of what was committed"
    forward = [step for step in run.steps if step.kind in {StepKind.STEP, StepKind.TX}]
    for step in forward:
        if step.state is StepState.SUCCEEDED:
            assert ledger.effects[step.name] == 1, f"{step.name} says SUCCEEDED without its effect"
        if step.state is StepState.FAILED and not step.doubt:
            assert ledger.effects[step.name] == 0, f"{step.name} says FAILED without doubt, and took effect"
        node = world.definition.node(step.name)
        if step.state is StepState.FAILED and step.doubt and node is not None and node.undo is not None:
            settled = node.undo.blind or not node.compensates
            assert settled, f"{step.name} may have happened, and was neither settled nor undone"
    undos = [step for step in run.steps if step.kind is StepKind.UNDO and step.state is StepState.COMPENSATED]
    assert {step.undo_of for step in undos} <= set(ledger.undone)
    if run.state is RunState.SUCCEEDED:
        assert not ledger.undone
        assert {step.state for step in run.steps} <= {StepState.SUCCEEDED, StepState.SKIPPED}
        assert len(run.steps) == len(world.definition.nodes)
    if run.state in {RunState.COMPENSATED, RunState.EXPIRED}:
        assert ledger.undone == to_undo(world), (
            "exactly what may have happened, in reverse order of completion"
        )
    if run.state is RunState.CANCELLED:
        assert not ledger.undone


def to_undo(world: World) -> list[str]:
    """Names of the steps to undo: a blind one in doubt first, then in reverse order of completion."""
    nodes = {node.name: node for node in world.definition.nodes if node.undo is not None}
    done = [step for step in world.run.steps if step.name in nodes]
    doubtful = [
        step.name
        for step in done
        if step.state is StepState.FAILED and step.doubt and getattr(nodes[step.name].undo, "blind", False)
    ]
    finished = [step for step in done if step.state is StepState.SUCCEEDED]
    return doubtful + [step.name for step in sorted(finished, key=lambda step: -(step.finish_no or 0))]
