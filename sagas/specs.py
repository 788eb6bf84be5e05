"""What nodes are compiled to, part by part: how they are asked about, undone, waited for and approved."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

from pydantic import BaseModel

from ..schemas.commands import Command
from ..schemas.errors import DefinitionError
from ..schemas.events import Event
from ..schemas.options import OnReject, OnTimeout, Retry
from ..schemas.states import Risk
from .context import Context, View

if TYPE_CHECKING:
    from .definition import Definition
    from .saga import Saga

AsyncFn: TypeAlias = Callable[..., Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeSpec:
    """How an unknown outcome is asked for.

    Attributes:
        settle: "Absent" counts only that long after the doubted try's lease ended.
        give_up: After that long a person is asked.
    """

    fn: AsyncFn
    settle: timedelta
    give_up: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoSpec:
    """How a step is undone; safe to repeat by contract.

    Attributes:
        blind: It may run without knowing whether the step took effect, and then receives None.
        attempt_timeout: Longest time of one try, that of the step.
        queue: Queue of its compensation topic, that of the step.
        risk: From HIGH on it waits for approval before it is announced.
        detached: While it awaits a person, it holds back no other undo.
    """

    name: str
    fn: AsyncFn
    retry: Retry
    blind: bool
    attempt_timeout: timedelta
    queue: str
    risk: Risk = Risk.LOW
    detached: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitSpec:
    """What a wait waits for.

    Attributes:
        match: Pure function whose text an event's correlation field must equal.
        timeout: How long, counted from when the wait begins.
        broadcast: An event satisfies every waiting run, not only the oldest wait.
    """

    event: type[Event]
    match: Callable[[View[Any]], str]
    timeout: timedelta
    on_timeout: OnTimeout
    broadcast: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSpec:
    """What a command sends, and what it is replied with.

    Attributes:
        send: Pure function that makes the command.
        timeout: How long a reply is waited for before it is sent again, or asked for.
    """

    send: Callable[[View[Any]], Command[Any]]
    reply: type[Event]
    timeout: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSpec:
    """Which saga a child is a run of, and what it gets.

    Attributes:
        saga: Its saga, whose flow may be declared later.
        input: Pure function that makes the child's input.
    """

    saga: Saga[Any]
    input: Callable[[View[Any]], BaseModel]

    @property
    def definition(self) -> Definition:
        """The compiled saga of the child."""
        return self.saga.definition


@dataclass(frozen=True, slots=True, kw_only=True)
class EachSpec:
    """Of which saga a fan-out starts runs, and for what.

    Attributes:
        saga: The saga of its items, whose flow may be declared later.
        items: Yields the input of each.
        concurrency: Most that are under way at once.
        min_success: Share of them that has to succeed, from 0 to 1.
    """

    saga: Saga[Any]
    items: Callable[[Context[Any]], AsyncIterator[BaseModel]]
    concurrency: int
    min_success: float

    @property
    def definition(self) -> Definition:
        """The compiled saga of the items."""
        return self.saga.definition


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalSpec:
    """What persons are asked.

    Attributes:
        roles: A person needs one of them.
        quorum: So many different persons; CRITICAL has two at least.
        expires: How long a question stands.
        params: Pure function to what is approved; None for the run's input.
    """

    roles: frozenset[str]
    risk: Risk
    quorum: int
    expires: timedelta
    on_expiry: OnTimeout
    on_reject: OnReject
    params: Callable[[View[Any]], BaseModel] | None


def check_risk(place: str, risk: object) -> None:
    """Refuse what is no risk.

    Raises:
        DefinitionError: MP137.
    """
    if not isinstance(risk, Risk):
        raise DefinitionError(
            "MP137", f"{place}: risk={risk!r} is none of Risk.LOW, Risk.MEDIUM, Risk.HIGH and Risk.CRITICAL."
        )
