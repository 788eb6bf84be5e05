"""Participants: a command's handler returns the reply, which is written in the transaction of its effect.

An operation that has a name (the headers milepost-run and milepost-step) happens once, however many attempts ask for
it: later ones are answered with the stored reply. An undo that comes before its do is recorded, answered, and refuses
the late do. Without a name every command is an operation of its own, which the inbox does once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from ..schemas.commands import (
    DONE,
    NOTHING,
    NOTHING_SUFFIX,
    REFUSED,
    REFUSED_SUFFIX,
    Command,
    Direction,
    Negative,
    Replier,
    Reply,
)
from ..schemas.envelope import Envelope
from ..schemas.errors import Refused, UsageError
from ..schemas.events import Event, is_topic, key_of
from ..schemas.exchange import LONGEST, Exchange
from ..schemas.transaction import Transaction
from ..streams.database import require_same_transaction
from ..streams.guard import ended_in_transaction
from .barrier import Barrier, Barriers, Key, Known, Outcome, Wanted
from .fingerprint import said
from .letter import for_people
from .model import Item

E = TypeVar("E", bound=Event)
C = TypeVar("C", bound=Command[Any])
Answerer: TypeAlias = Callable[[C, Transaction], Awaitable[E]]

#: Code of the refusal of a do whose undo was here first.
UNDONE_BEFORE = "UNDONE_BEFORE"
NOTHING_TO_UNDO = "NOTHING_TO_UNDO"


@dataclass(frozen=True, slots=True)
class Answering:
    """The handler of a command.

    Attributes:
        consumer: The participant.
        command: Class of the command.
        reply: Class of the reply.
        undoes: The command whose operations this one undoes; None when it undoes none.
        answer: The user's function.
        write: Writes replies; None on a consumer that belongs to no service.
    """

    consumer: str
    command: type[Command[Any]]
    reply: type[Event]
    undoes: type[Command[Any]] | None
    answer: Answerer[Any, Any]
    write: Replier | None

    async def __call__(self, command: Command[Any], tx: Transaction) -> None:
        """Handle the only command of a transaction; see `handle`."""
        shared = Barriers(tx.connection, self.consumer)
        await self.handle(command, tx, shared)
        await shared.store()

    async def handle(self, command: Command[Any], tx: Transaction, shared: Barriers) -> None:
        """Do or undo what the command asks for, unless that was done before, and reply.

        Args:
            shared: What the commands of the transaction share; to be stored after the last of them.

        Raises:
            UsageError: MP472 on a consumer without a service, MP473 when the user's function returns something else
                than a reply, MP475 for a reply-to that is no topic, MP476 when the operation was asked for with
                another content.
            Exception: Whatever the user's function raises, except `Refused`, which is a reply.
        """
        if self.write is None:
            raise UsageError(
                "MP472",
                f"consumer {self.consumer} cannot reply: it belongs to no service. Make it with "
                f"service.consumer({self.consumer!r}).",
            )
        case = _Case(self, self.write, command, tx, shared)
        if not case.asked.run:
            await case.plain()
        elif case.direction == "undo" and self.undoes is not None:
            await case.undo()
        else:
            await case.do()

    def direction_of(self, asked: Exchange) -> Direction:
        """Return what a command asks for."""
        return "undo" if self.undoes is not None or asked.direction == "undo" else "do"

    def fingerprints(self, command: Command[Any]) -> Sequence[bytes]:
        """Return digests over type and what the command said; defaults are left out, so that new ones change nothing.

        The first is stored. Those of an encrypted command are keyed, and the others are of keys that were first before.
        """
        kind = self.command.milepost_spec.type.encode()
        return command.milepost_spec.codec.digests(kind + b"\n" + said(command))


def to_begin(items: Iterable[Item]) -> list[Wanted]:
    """Return what the commands of a batch take in advance; not of operations that several of them are about."""
    about, wanted = Counter[tuple[str, str, str]](), []
    for item in items:
        by, envelope = item.handler, item.envelope
        asked = envelope and envelope.exchange
        if not isinstance(by, Answering) or envelope is None or not asked or not asked.run:
            continue
        about[envelope.tenant, asked.run, asked.step] += 1
        if by.undoes is None:
            key = Key(envelope.tenant, asked.run, asked.step, by.direction_of(asked))
            command: Any = item.event
            wanted.append(Wanted(key, envelope.event_id, by.fingerprints(command)[0]))
    return [one for one in wanted if about[one.key[:3]] == 1]


@dataclass(slots=True)
class _Case:
    """One command being handled."""

    by: Answering
    write: Replier
    command: Command[Any]
    tx: Transaction
    shared: Barriers

    @property
    def envelope(self) -> Envelope:
        return self.tx.envelope

    @property
    def asked(self) -> Exchange:
        return self.envelope.exchange or Exchange()

    @property
    def direction(self) -> Direction:
        return self.by.direction_of(self.asked)

    @property
    def barrier(self) -> Barrier:
        return Barrier(self.shared, self.envelope.tenant, self.asked.run, self.asked.step)

    async def plain(self) -> None:
        """Answer a command that names no operation."""
        await self._reply(await self._act())

    async def do(self) -> None:
        """Answer a command whose operation happens once; also an undo that knows nothing of its do."""
        barrier, direction = self.barrier, self.direction
        new = self.shared.taken(barrier.key(direction))
        if new is None:
            new = await barrier.begin(direction, self.envelope.event_id, self._fingerprints()[0])
        if not new:
            known = await barrier.known(direction)
            if known.outcome == "BLOCKED":
                await self._reply(self._negative(UNDONE_BEFORE, "its undo was here before"), REFUSED)
            else:
                await self._again(known, self._fingerprints())
            return
        answer = await self._act()
        if isinstance(answer, Negative) and direction == "undo":
            await barrier.withdraw(direction)
            await self._reply(answer)
            return
        outcome: Outcome = "REFUSED" if isinstance(answer, Negative) else "DONE"
        barrier.finish(direction, outcome, await self._reply(answer))

    async def undo(self) -> None:
        """Answer a command that undoes an operation, if there is something to undo."""
        barrier, event_id, prints = self.barrier, self.envelope.event_id, self._fingerprints()
        # Whoever is doing it is waited for here, and a do that has not begun never will.
        await barrier.begin("do", event_id, prints[0], outcome="BLOCKED")
        if not await barrier.begin("undo", event_id, prints[0]):
            await self._again(await barrier.known("undo"), prints)
            return
        done = (await barrier.known("do")).outcome
        if done == "PENDING":
            # It was committed by its own function, as in `_again`: what it wrote stands.
            raise ended_in_transaction()
        if done != "DONE":
            nothing = self._negative(NOTHING_TO_UNDO, "")
            barrier.finish("undo", "NOTHING_TO_UNDO", await self._reply(nothing, NOTHING))
            return
        answer = await self._act()
        if isinstance(answer, Negative):
            # What cannot be undone today may be undone once a person has seen to it: nothing is remembered.
            await barrier.withdraw("undo")
            await self._reply(answer)
            return
        barrier.finish("undo", "DONE", await self._reply(answer))

    async def _act(self) -> Event | Negative:
        """Call the user's function; what it has written before it refused is taken back.

        The savepoint is left open by any other error, which ends the transaction as a whole.
        """
        tx, nested = self.tx, None
        if tx._session is None:
            await self.shared.point()
        else:
            nested = await tx._session.begin_nested()
            # Else it is set with the session's first statement, and what is written beside the session stays.
            await tx._session.connection()
        try:
            answer = await self.by.answer(self.command, tx)
        except Refused as no:
            await require_same_transaction(tx)
            await (self.shared.back() if nested is None else nested.rollback())
            return self._negative(no.code, no.message)
        await require_same_transaction(tx)
        if not isinstance(answer, self.by.reply):
            raise UsageError(
                "MP473",
                f"consumer {self.by.consumer}: the answer to {self.by.command.__name__} is "
                f"{type(answer).__name__}, not {self.by.reply.__name__}. Return the reply, or raise Refused(code).",
            )
        if nested is not None:
            await nested.commit()
        return answer

    async def _reply(self, answer: Event | Negative | Reply, outcome: str = "") -> Reply:
        found = outcome or (REFUSED if isinstance(answer, Negative) else DONE)
        return await self.write(self.tx, answer, topic=self._topic(), key=self._key(), outcome=found)

    async def _again(self, known: Known, fingerprints: Sequence[bytes]) -> None:
        if known.fingerprint not in fingerprints:
            raise UsageError(
                "MP476",
                f"consumer {self.by.consumer}: {self.asked.run} {self.asked.step} was asked for before with "
                f"another {self.by.command.__name__}, and is not done twice. A new intent needs a new run or step.",
            )
        if known.reply is None:
            # It was committed by its own function, which is not called again: what it did may stand.
            raise ended_in_transaction()
        outcome = {"DONE": DONE, "REFUSED": REFUSED}.get(known.outcome, NOTHING)
        await self._reply(known.reply, outcome)

    def _topic(self) -> str:
        found = self.asked.reply_to or self.by.reply.milepost_spec.topic
        # Kafka's own topics are what no requester may have a participant write to.
        if not is_topic(found) or found.startswith("__"):
            raise UsageError(
                "MP475",
                f"consumer {self.by.consumer}: the command wants its reply on {found!r}, which is no topic for it. "
                "The requester must correct its header milepost-reply-to.",
            )
        return found

    def _key(self) -> str | None:
        key = self.envelope.key
        return key_of(self.command) or (None if key is None else key.decode(errors="replace"))

    def _negative(self, code: str, message: str) -> Negative:
        suffix = NOTHING_SUFFIX if code == NOTHING_TO_UNDO else REFUSED_SUFFIX
        return Negative(
            message_type=self.by.command.milepost_spec.type + suffix,
            code=for_people(code)[:LONGEST],
            message=for_people(message),
            command=self.envelope.event_id,
            run=self.asked.run,
            step=self.asked.step,
            direction=self.direction,
        )

    def _fingerprints(self) -> Sequence[bytes]:
        return self.by.fingerprints(self.command)
