"""Runs whose time is limited, and a waker that looks at them when it is over."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from milepost.sagas.definition import Definition
from milepost.sagas.facts import Start, Wake
from milepost.schemas.options import Repeat, Then
from milepost.schemas.states import RunState

from tests.support.sagas import HOUR, LIMITS, NOW, Play, add_step, flow, new_saga
from tests.support.waits import add_wait

DUE = NOW + HOUR


def playing(definition: Definition, deadline_at: datetime | None = DUE) -> Play:
    """Return a run with a deadline that has just begun."""
    play = Play(definition, started=False)
    since = None if definition.active_timeout is None else NOW
    wakes = [at for at in (NOW + LIMITS.sweep, deadline_at) if at is not None]
    play.run = replace(play.run, deadline_at=deadline_at, active_since=since, wake_at=min(wakes))
    play.send(Start())
    return play


def saga_of(*repeats: Repeat, active_timeout: timedelta | None = None, **options: Any) -> Definition:
    """Return a saga of steps first, second and so on, each with its undo unless the options say otherwise."""
    saga = new_saga()
    saga.active_timeout = active_timeout
    for name, repeat in zip(("first", "second", "third"), repeats, strict=False):
        add_step(saga, name, repeat, **{"undo": True, "probe": repeat is Repeat.ASK_FIRST} | options)
    return flow(saga)


def time_is_over(play: Play) -> None:
    """Look at the run when its time is over, as the waker does."""
    play.now = DUE
    play.send(Wake(None, 0))


def ended(play: Play, *undone: str, cause: str = "DEADLINE") -> bool:
    """Let the undos succeed that are under way, and return whether the run is EXPIRED after exactly these."""
    for name in undone:
        assert play.run.state is RunState.COMPENSATING
        play.succeed(f"undo_{name}")
    run = play.run
    return (run.state, run.code, run.cause) == (RunState.EXPIRED, cause, cause)


def waiting_run(then: Any = Then.PERSON, **options: Any) -> Play:
    """Return a run that waits after a step with an undo."""
    saga = new_saga()
    add_step(saga, "ship", undo=True)
    wait = add_wait(saga, on_timeout=then, **options)
    if then is Then.RECONCILE:

        async def ask(ctx: Any) -> Any: ...

        wait.probe(ask)

    add_step(saga, "close", on_failure=Then.PERSON)
    play = playing(flow(saga))
    play.succeed("ship")
    return play
