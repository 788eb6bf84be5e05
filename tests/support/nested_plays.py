"""Nested runs played at random, one per seed: faster than a Hypothesis machine, and the same for the same seed."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

from tests.support.nested_drawn import drawn_by
from tests.support.nested_ending import Watch, bring_to_its_end, check_end
from tests.support.nested_world import NestedWorld
from tests.support.sagas import HOUR, MINUTE, SECOND

FAULTS = ("lost", "nothing", "retry", "not_sent", "die_before", "die_after", "freeze", "hand_back")
PAUSES = (SECOND, 31 * SECOND, MINUTE, 6 * MINUTE, HOUR, timedelta(hours=2))
MOVES = ("message", "message", "message", "worker", "worker", "worker", "together", "time", "late")


def play(seed: int) -> Watch:
    """Play one run to its end and compare it with the model; returns what was watched."""
    dice = random.Random(seed)
    world = NestedWorld(drawn_by(dice))
    watch = Watch(world)
    share = dice.choice([0.0, 0.1, 0.3, 0.6])
    for _ in range(dice.choice([5, 40, 120])):
        _move(world, dice, share)
        watch.look()
    bring_to_its_end(world)
    watch.look()
    check_end(watch)
    return watch


def _move(world: NestedWorld, dice: random.Random, share: float) -> None:
    what = dice.choice(MOVES)
    if what == "message" and world.messages:
        message = world.messages.pop(dice.randrange(len(world.messages)))
        fault = dice.choice(["keep", "lose", "slow"]) if dice.random() < share else ""
        world.messages += [message] if fault == "keep" else []
        world.receive(message, slowly=fault == "slow") if fault != "lose" else None
    elif what == "worker" and world.workers:
        how: Any = dice.choice(FAULTS) if dice.random() < share else "ok"
        world.act(dice.choice(world.workers), how)
    elif what == "together" and len(world.workers) > 1:
        world.act_together(*dice.sample(world.workers, dice.randint(2, len(world.workers))))
    elif what == "time":
        _time(world, dice)
    elif what == "late":
        _late(world, dice)


def _time(world: NestedWorld, dice: random.Random) -> None:
    world.pass_time(dice.choice(PAUSES))
    for fact in world.swept() if dice.random() < 0.7 else []:
        world.apply(fact)
    world.messages += world.due() if dice.random() < 0.7 else []


def _late(world: NestedWorld, dice: random.Random) -> None:
    """Commit what was decided long ago, thaw a worker, let events come, or let a person act."""
    what = dice.choice(["pending", "thaw", "signal", "person"])
    if what == "pending" and world.pending:
        pending = world.pending.pop(0)
        if dice.random() < 0.5 and not world.commit(pending):
            world.apply(pending.fact)
    elif what == "thaw" and world.frozen:
        world.apply(world.frozen.pop(dice.randrange(len(world.frozen))))
    elif what == "signal":
        world.signal()
    elif what == "person" and world.held():
        wish: Any = dice.choice(["retry", "skip", "compensate"])
        world.person(dice.choice(world.held()), wish)
