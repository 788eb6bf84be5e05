"""The function behind answers() returns the reply that it was registered for, and takes that command."""

from milepost import Command, Consumer, Event, Transaction, send


class Booked(Event, type="truck.booked", topic="replies"):
    plate: str


class Cancelled(Event, type="truck.cancelled", topic="replies"):
    plate: str


class Book(Command[Booked], type="truck.book", topic="trucks"):
    truck: str


consumer = Consumer("trucks")


@consumer.answers(Book, Booked)  # expect: arg-type
async def cancels(command: Book, tx: Transaction) -> Cancelled:
    return Cancelled(plate=command.truck)


@consumer.answers(Book, Booked)  # expect: arg-type
async def forgets(command: Book, tx: Transaction) -> None: ...


@consumer.answers(Booked, Booked)  # expect: type-var
async def answers_no_command(event: Booked, tx: Transaction) -> Booked:
    return event


async def sends_no_command(tx: Transaction) -> None:
    await send(tx, Booked(plate="p"))  # expect: arg-type
