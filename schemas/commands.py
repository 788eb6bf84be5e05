"""Commands: events that ask one participant to do something, and the reply that they get."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar

from pydantic import BaseModel, Field

from .envelope import Envelope
from .errors import DefinitionError
from .events import Event
from .exchange import ATTEMPT, CODE, DIRECTION, OUTCOME, REPLY_TO, RUN, STEP, Exchange
from .transaction import Transaction

E = TypeVar("E", bound=Event)
Direction: TypeAlias = Literal["do", "undo"]

DONE, REFUSED, NOTHING = "done", "refused", "nothing-to-undo"
#: What follows the command's type in the type of a reply that has no body of the reply's class.
REFUSED_SUFFIX, NOTHING_SUFFIX = ".refused", ".nothing-to-undo"


class Command(Event, Generic[E]):
    """Base of the user's commands; the parameter is the class of the reply.

    Declare them as events::

        class BookTruck(Command[TruckBooked], type="truck.book", topic="trucks", key="order_id"):
            order_id: str

    A requester sends one with `send`; a participant answers it with `@consumer.answers`.
    """


def reply_of(command: type[Command[Any]]) -> type[Event]:
    """Return the class of a command's reply.

    Raises:
        DefinitionError: MP470 when the command does not say one.
    """
    for base in command.__mro__:
        made = getattr(base, "__pydantic_generic_metadata__", None)
        if made and made["origin"] is Command:
            [found] = made["args"]
            if isinstance(found, type) and issubclass(found, Event):
                return found
    raise DefinitionError(
        "MP470",
        f"command {command.__name__} does not say what it is replied with. Declare it as class "
        f"{command.__name__}(Command[TheReply], …), with the reply's own event class.",
    )


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply as it was written, to be sent again as it is when another attempt asks for it.

    Attributes:
        headers: All of its record headers; they hold its id, type and time.
    """

    type: str
    key: str | None
    payload: bytes | None
    headers: Mapping[str, str]


class Negative(BaseModel):
    """Body of a reply that is no reply class: refused, or nothing to undo.

    Attributes:
        code: Why it was refused; "NOTHING_TO_UNDO" otherwise.
        command: CloudEvents id of the command.
        run: As the command said, so that a requester may correlate on it.
        step: As the command said.
        direction: As the command said.
    """

    message_type: str = Field(exclude=True)
    code: str
    message: str
    command: str
    run: str
    step: str
    direction: str


class Replier(Protocol):
    """Writes replies to the outbox."""

    async def __call__(
        self, tx: Transaction, answer: Event | Negative | Reply, *, topic: str, key: str | None, outcome: str
    ) -> Reply:
        """Write a reply to the command being handled, in its transaction.

        Args:
            answer: The reply; a stored one is sent as it was.
            topic: Where to.
            key: Record key of a `Negative`; the others have their own.
            outcome: DONE, REFUSED or NOTHING.

        Returns:
            What was written.
        """
        ...


def request_headers(run: str, step: str, direction: Direction, attempt: int, reply_to: str) -> dict[str, str]:
    """Return the headers that a command carries beside those of any event."""
    found = {RUN: run, STEP: step, DIRECTION: direction, ATTEMPT: str(attempt), REPLY_TO: reply_to}
    return {name: text for name, text in found.items() if text}


def reply_headers(envelope: Envelope, outcome: str, code: str = "") -> dict[str, str]:
    """Return the headers that the reply to a command carries: the command's, echoed, and the outcome."""
    asked = envelope.exchange or Exchange()
    found = {
        RUN: asked.run,
        STEP: asked.step,
        DIRECTION: asked.direction,
        ATTEMPT: str(asked.attempt),
        OUTCOME: outcome,
        CODE: code,
    }
    return {name: text for name, text in found.items() if text}
