"""What the shop sends to the truck company, and what comes back. The company has its own classes, or none."""

from __future__ import annotations

import os

from milepost import Command, Event

#: Beginning of the topics' names, where several of these share a broker.
PREFIX = os.environ.get("TRUCKS_PREFIX", "")
REPLIES, COMMANDS = f"{PREFIX}truck-replies", f"{PREFIX}trucks"


class TruckBooked(Event, type="truck.booked", version=1, topic=REPLIES, key="truck"):
    """A truck is booked."""

    truck: str
    plate: str


class TruckCancelled(Event, type="truck.cancelled", version=1, topic=REPLIES, key="truck"):
    """The booking is cancelled."""

    truck: str


class TruckRefused(Event, type="truck.book.refused", version=1, topic=REPLIES):
    """No truck was booked; the body of every refusal of a command."""

    code: str
    message: str = ""


class NothingToCancel(Event, type="truck.cancel.nothing-to-undo", version=1, topic=REPLIES):
    """There was no booking to cancel, and there never will be one."""

    run: str
    step: str


class BookTruck(Command[TruckBooked], type="truck.book", version=1, topic=COMMANDS, key="truck"):
    """Book a truck."""

    truck: str


class CancelTruck(Command[TruckCancelled], type="truck.cancel", version=1, topic=COMMANDS, key="truck"):
    """Cancel what `BookTruck` of the same run and step has booked."""

    truck: str
