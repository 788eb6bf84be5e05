"""What a user declares: which function handles which event, under which name."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, TypeAlias, TypeVar, get_type_hints

from ..schemas.commands import Command, Replier, reply_of
from ..schemas.envelope import Envelope
from ..schemas.errors import DefinitionError
from ..schemas.events import Event, check_upcasters
from ..schemas.options import Retry
from ..schemas.transaction import Transaction
from .answers import Answerer, Answering
from .together import Together

E = TypeVar("E", bound=Event)
C = TypeVar("C", bound=Command[Any])
Handler: TypeAlias = Callable[[E, Transaction], Awaitable[None]]
BatchHandler: TypeAlias = Callable[[Sequence[E], Transaction], Awaitable[None]]
Prepare: TypeAlias = Callable[[Transaction, Sequence[tuple[Event, Envelope]]], Awaitable[None]]
Unknown: TypeAlias = Literal["skip", "dead_letter"]

_NAME = re.compile(r"[a-zA-Z0-9._-]{1,200}")


class Consumer:
    """Handlers of a service under one name, which is the Kafka group and the inbox identity at once.

    Renaming a consumer reads its topics anew.

    Args:
        name: Letters, digits, '.', '_' and '-'.
        unknown: What to do with an event type that no handler takes: skip it, or store a dead letter.
        batch: Most events in one transaction.
        retry: Tries of one event before it becomes a dead letter, and the delays between them.
        hold_key: Whether a dead letter holds its key: later events of it are parked behind, in order, until the letter
            is redriven or ignored. Other keys flow.
        reply: Writes the replies to commands; None on a consumer that answers none.

    Raises:
        DefinitionError: MP123 when an argument is wrong.
    """

    def __init__(
        self,
        name: str,
        *,
        unknown: Unknown = "skip",
        batch: int = 500,
        retry: Retry = Retry(attempts=3),
        hold_key: bool = False,
        reply: Replier | None = None,
    ) -> None:
        if not _NAME.fullmatch(name):
            raise DefinitionError(
                "MP123",
                f"consumer {name!r}: the name is a Kafka group, so use letters, digits, '.', '_' and '-'.",
            )
        if unknown not in ("skip", "dead_letter"):
            raise DefinitionError(
                "MP123", f'consumer {name}: unknown={unknown!r} must be "skip" or "dead_letter".'
            )
        if batch < 1 or retry.attempts < 1:
            raise DefinitionError("MP123", f"consumer {name}: batch and retry.attempts must be 1 or more.")
        self.name = name
        self.unknown: Unknown = unknown
        self.batch = batch
        self.retry = retry
        self.hold_key = hold_key
        self.answering: list[Answering] = []
        self._reply = reply
        self._handlers: dict[str, tuple[type[Event], Handler[Any]]] = {}

    def on(self, event: type[E]) -> Callable[[Handler[E]], Handler[E]]:
        """Register the decorated async function as the handler of an event class.

        Args:
            event: Event class; its topic is read, its type selects the handler.

        Raises:
            DefinitionError: MP123 when the type already has a handler, MP124 when the function cannot be one, MP344
                when the event's upcasters have a gap.
        """

        def register(handler: Handler[E]) -> Handler[E]:
            self._register(event, handler, handler)
            return handler

        return register

    def on_batch(self, event: type[E]) -> Callable[[BatchHandler[E]], BatchHandler[E]]:
        """Register the decorated async function as the handler of an event class, for many events in one call.

        It is called with new events of a batch in their order, all in the transaction that also marks them as applied,
        so that one statement (an unnest, a COPY) can write the effects of hundreds. `tx.envelopes` are theirs, in the
        same order. Where a batch has events of several types, each run of neighbours of one type is one call, so that
        the order between types is kept.

        A run whose call raises is tried again event by event, each in a sequence of one and in a transaction of its
        own; an event that then fails is retried and parked like any other.

        Args:
            event: As for `on`.

        Raises:
            DefinitionError: As `on`.
        """

        def register(handler: BatchHandler[E]) -> BatchHandler[E]:
            self._register(event, handler, Together(handler))
            return handler

        return register

    def _register(self, event: type[Event], given: Callable[..., Any], handler: Handler[Any]) -> None:
        check_upcasters(event)
        kind = event.milepost_spec.type
        if kind in self._handlers:
            other, known = self._handlers[kind]
            raise DefinitionError(
                "MP123",
                f"consumer {self.name}: {_name(given)} would be the second handler of {kind}; "
                f"{_name(known)} already takes {other.__name__}. Call both from one handler, or use a "
                "second consumer with a name of its own.",
            )
        _check(self.name, given)
        self._handlers[kind] = (event, handler)

    def answers(
        self, command: type[C], reply: type[E], *, undoes: type[Command[Any]] | None = None
    ) -> Callable[[Answerer[C, E]], Answerer[C, E]]:
        """Register the decorated async function as the one that carries out a command and returns its reply.

        The reply is written in the transaction of the function's effect. `raise Refused(code)` replies that nothing
        happened, and takes back what the function has written. An operation that the requester has named (`send`
        with run and step) is done once; another attempt gets the same reply again.

        Args:
            command: Command class; its topic is read, its type selects the function.
            reply: What the function returns; the command's own parameter.
            undoes: The command whose operations this one undoes, answered by the same consumer. An undo that comes
                first is answered without a call of the function, and the late command is refused (UNDONE_BEFORE).

        Raises:
            DefinitionError: MP123 and MP124 as `on`, MP470 when command and reply do not belong together, MP473 when
                the function is annotated to return something else, MP477 when what `undoes` names is not answered
                here.
        """
        if reply_of(command) is not reply:
            raise DefinitionError(
                "MP470",
                f"consumer {self.name}: {command.__name__} is replied with {reply_of(command).__name__}, not "
                f"{reply.__name__}. Name the class that it was declared with.",
            )
        if undoes is not None and all(known.command is not undoes for known in self.answering):
            raise DefinitionError(
                "MP477",
                f"consumer {self.name}: {command.__name__} undoes {undoes.__name__}, which this consumer does not "
                "answer (yet). Answer it first, in the same consumer: the two share one memory.",
            )

        def register(answer: Answerer[C, E]) -> Answerer[C, E]:
            _check(self.name, answer)
            _check_reply(self.name, answer, reply)
            found = Answering(self.name, command, reply, undoes, answer, self._reply)
            self.on(command)(found)
            self.answering.append(found)
            return answer

        return register

    @property
    def topics(self) -> list[str]:
        """Topics to read, sorted."""
        return sorted({event.milepost_spec.topic for event, _ in self._handlers.values()})

    @property
    def events(self) -> list[type[Event]]:
        """Event classes with a handler, in the order of their declaration."""
        return [event for event, _ in self._handlers.values()]

    def handler_of(self, type: str) -> tuple[type[Event], Handler[Any]] | None:
        """Return the event class and the handler of a CloudEvents type, or None."""
        return self._handlers.get(type)


class PreparedConsumer(Consumer):
    """A consumer that does something for all new events of a batch before the first one is handled.

    Args:
        name: As for any consumer.
        prepare: Called in the batch's transaction with its new events, in order. What it raises is taken as trouble
            underneath, so it must leave a bad event for its handler to refuse.
    """

    def __init__(self, name: str, prepare: Prepare) -> None:
        super().__init__(name)
        self.prepare = prepare


def _check_reply(consumer: str, answer: Callable[..., Any], reply: type[Event]) -> None:
    """Refuse a function whose annotation says that it returns something else; one that says nothing may do well."""
    inner: Any = answer
    while isinstance(inner, functools.partial):
        inner = inner.func
    if not inspect.isroutine(inner):
        inner = type(inner).__call__
    inner = inspect.unwrap(inner)

    def only_return() -> None: ...

    only_return.__annotations__ = {
        name: written for name, written in getattr(inner, "__annotations__", {}).items() if name == "return"
    }
    try:
        declared = get_type_hints(only_return, globalns=getattr(inner, "__globals__", {})).get("return", Any)
    except Exception:  # a name that is known to type checkers only, or to the function around
        return
    if declared is Any or not inspect.isclass(declared):
        return
    if not issubclass(declared, reply) and declared not in reply.__mro__:
        found = "None" if declared is type(None) else declared.__name__
        raise DefinitionError(
            "MP473",
            f"consumer {consumer}: {_name(answer)} is annotated to return {found}, not {reply.__name__}. "
            f"Return the reply and write -> {reply.__name__}, or raise Refused(code).",
        )


def _name(function: object) -> str:
    function = function.handler if isinstance(function, Together) else function
    return getattr(function, "__qualname__", repr(function))


def _check(consumer: str, handler: Callable[..., Any]) -> None:
    inner: Any = handler
    while isinstance(inner, functools.partial):
        inner = inner.func
    called = getattr(inner, "__call__", None)  # noqa: B004 - an object with an async __call__ is a handler too
    if not (inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(called)):
        raise DefinitionError(
            "MP124",
            f"consumer {consumer}: {_name(handler)} is no async function. Write `async def` and await in it.",
        )
    try:
        inspect.signature(handler).bind(object(), object())
    except TypeError as error:
        raise DefinitionError(
            "MP124",
            f"consumer {consumer}: {_name(handler)} must take (event, tx): {error}.",
        ) from None
