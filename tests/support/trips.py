"""A saga whose time is limited: it books, waits until somebody has departed, and closes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from milepost import Context, Event, Repeat, Retry, Saga, Then
from pydantic import AwareDatetime, BaseModel


class Trip(BaseModel):
    id: str
    due: AwareDatetime | None = None


class Departed(Event, type="trip.departed", topic="departures", key="id", correlate="id"):
    id: str


class Office:
    """Where trips are booked: a ledger of effects, in order.

    Attributes:
        shut: Closing a trip fails.
        calls: How often closing was tried.
    """

    def __init__(self) -> None:
        self.ledger: list[str] = []
        self.shut = False
        self.calls = 0


def trips(**options: Any) -> Saga[Trip]:
    """Return a saga `book > departed > close` with these options; its wait takes up to thirty days."""
    saga = Saga("trip", version=1, input=Trip, key=lambda trip: trip.id, **options)

    @saga.step(repeat=Repeat.SAFE)
    async def book(ctx: Context[Trip]) -> None:
        ctx.use(Office).ledger.append("book")

    @book.undo
    async def unbook(ctx: Context[Trip], done: None) -> None:
        ctx.use(Office).ledger.append("unbook")

    departed = saga.wait(
        "departed",
        Departed,
        match=lambda view: view.input.id,
        timeout=timedelta(days=30),
        on_timeout=Then.PERSON,
    )

    @saga.step(
        repeat=Repeat.SAFE,
        no_undo="the last",
        retry=Retry(attempts=1000, first=timedelta(minutes=5), within=None),
    )
    async def close(ctx: Context[Trip]) -> None:
        office = ctx.use(Office)
        office.calls += 1
        if office.shut:
            raise RuntimeError("nobody answers")
        office.ledger.append("close")

    saga.flow(book, departed, close)
    return saga
