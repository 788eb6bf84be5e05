"""A service that books trips by commands, and the participant that has the trucks; their ledgers are tables."""

from __future__ import annotations

import os
from datetime import timedelta

from milepost import (
    Command,
    Context,
    Event,
    Milepost,
    Refused,
    Repeat,
    Retry,
    Saga,
    Settings,
    Transaction,
    all_of,
)
from pydantic import BaseModel

PREFIX = os.environ.get("TRIPS_PREFIX", "trips")
LEDGER = "CREATE TABLE ledger (n bigserial PRIMARY KEY, act text NOT NULL, truck text NOT NULL)"


class Trip(BaseModel):
    """Input; `fails` says that the last step is refused."""

    name: str
    fails: bool = False


class Booked(Event, type="trips.booked", topic=f"{PREFIX}-replies-of-trucks", key="truck"):
    truck: str
    plate: str


class Cancelled(Event, type="trips.cancelled", topic=f"{PREFIX}-replies-of-trucks", key="truck"):
    truck: str


class Book(Command[Booked], type="trips.book", topic=f"{PREFIX}-trucks", key="truck"):
    truck: str


class Cancel(Command[Cancelled], type="trips.cancel", topic=f"{PREFIX}-trucks", key="truck"):
    truck: str


trip = Saga("trip", version=1, input=Trip, key=lambda given: given.name)
#: A participant that is away is asked again and again.
PATIENT = Retry(attempts=50, within=None)
there = trip.command(
    "there",
    lambda v: Book(truck=f"{v.input.name}-there"),
    reply=Booked,
    timeout=timedelta(seconds=2),
    repeat=Repeat.SAFE,
    retry=PATIENT,
)
back = trip.command(
    "back",
    lambda v: Book(truck=f"{v.input.name}-back"),
    reply=Booked,
    timeout=timedelta(seconds=2),
    repeat=Repeat.SAFE,
    retry=PATIENT,
)


@there.undo
async def cancel_there(ctx: Context[Trip], done: Booked) -> None:
    ctx.emit(Cancel(truck=done.truck))


@back.undo
async def cancel_back(ctx: Context[Trip], done: Booked) -> None:
    ctx.emit(Cancel(truck=done.truck))


@trip.step(repeat=Repeat.SAFE, retry=Retry(attempts=1))
async def announce(ctx: Context[Trip]) -> None:
    if ctx.input.fails:
        raise Refused("NOBODY_LISTENS")


trip.flow(all_of(there, back), trip.timer("rest", timedelta(milliseconds=200)), announce)

settings = Settings.from_env()
service = Milepost(PREFIX, sagas=[trip], settings=settings)

trucks = Milepost(f"{PREFIX}-trucks", settings=settings)
yard = trucks.consumer(f"{PREFIX}-yard")


@yard.answers(Book, Booked)
async def book(command: Book, tx: Transaction) -> Booked:
    await tx.connection.execute("INSERT INTO ledger (act, truck) VALUES ('do', $1)", command.truck)
    if command.truck.startswith("none"):
        raise Refused("NO_TRUCK", "none is free")
    return Booked(truck=command.truck, plate=f"P-{command.truck}")


@yard.answers(Cancel, Cancelled, undoes=Book)
async def cancel(command: Cancel, tx: Transaction) -> Cancelled:
    await tx.connection.execute("INSERT INTO ledger (act, truck) VALUES ('undo', $1)", command.truck)
    return Cancelled(truck=command.truck)
