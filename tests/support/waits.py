"""Waits for tests, and a run that has come to its wait."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from milepost.sagas.model import (
    CloseWait,
)
from milepost.sagas.saga import Saga
from milepost.schemas.options import Found, OnTimeout, Probe, Then

from tests.support.sagas import Delivered, Order, Play, add_step, flow, new_saga

DAY = timedelta(days=1)


def waiting(
    then: OnTimeout,
    *,
    match: Callable[[Any], Any] | None = None,
    timeout: timedelta = 3 * DAY,
    after: bool = True,
    broadcast: bool = False,
) -> Play:
    saga = new_saga()
    ship = add_step(saga, "ship", undo=True)
    wait = saga.wait(
        "delivered",
        Delivered,
        match=match or (lambda v: v.result(ship).id),
        timeout=timeout,
        on_timeout=then,
        broadcast=broadcast,
    )
    if then is Then.RECONCILE:

        @wait.probe
        async def ask(ctx: Any) -> Probe[Delivered]:
            return Found(Delivered(id="x"))

    if after:
        add_step(saga, "close", on_failure=Then.PERSON)
    play = Play(flow(saga))
    play.succeed("ship")
    return play


def closed(play: Play, generation: int = 1) -> bool:
    return play.last.closes == (CloseWait("delivered", generation),)


def add_wait(saga: Saga[Order], name: str = "delivered", **options: Any) -> Any:
    """Declare a wait, with a person at its timeout unless the options say otherwise."""
    given: dict[str, Any] = {
        "match": lambda v: v.input.id,
        "timeout": DAY,
        "on_timeout": Then.PERSON,
    } | options
    return saga.wait(name, given.pop("event", Delivered), **given)
