"""What the decorators of a `Saga` return: steps, waits and undos, to which probes and undos are attached."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar, overload

from pydantic import BaseModel

from ..schemas.budget import Budget
from ..schemas.children import ChildRun
from ..schemas.commands import Command
from ..schemas.errors import DefinitionError
from ..schemas.events import Event
from ..schemas.options import OnFailure, OnTimeout, Probe, Repeat, Retry
from ..schemas.states import Risk, StepKind
from .context import Context, View
from .functions import check_async, check_parameters
from .specs import AsyncFn, ChildSpec, ProbeSpec, check_risk

if TYPE_CHECKING:
    from .saga import Saga

I = TypeVar("I", bound=BaseModel)  # noqa: E741
R = TypeVar("R", bound=BaseModel | None)
E = TypeVar("E", bound=Event)

UndoFn: TypeAlias = Callable[[Context[I], R], Awaitable[None]]
BlindUndoFn: TypeAlias = Callable[[Context[I], R | None], Awaitable[None]]
ProbeFn: TypeAlias = Callable[[Context[I]], Awaitable[Probe[R]]]

UNDO_RETRY = Retry(attempts=10)
SETTLE = timedelta(minutes=1)
GIVE_UP = timedelta(hours=1)
#: Longest time of one call of a command's probe or undo.
CALL_TIMEOUT = timedelta(seconds=30)


class Node(Generic[I, R]):
    """A step or a wait of a saga.

    Attributes:
        name: Unique within the saga, together with the names of undos.
    """

    name: str

    def __init__(self, saga: Saga[I], name: str) -> None:
        self.name = name
        self._saga = saga

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} of {self._saga.title}>"

    @property
    def saga(self) -> Saga[I]:
        """The saga it was declared on."""
        return self._saga


class Undo(Generic[I]):
    """The undo of a step.

    Attributes:
        name: The function's name.
        of: Name of the step that it undoes.
    """

    name: str

    def __init__(
        self, name: str, *, of: str, fn: AsyncFn, retry: Retry, blind: bool, risk: Risk, detached: bool
    ) -> None:
        self.name = name
        self.of = of
        self.fn = fn
        self.retry = retry
        self.blind = blind
        self.risk = risk
        self.detached = detached

    def __repr__(self) -> str:
        return f"<Undo {self.name} of {self.of}>"


class Probed(Node[I, R]):
    """A node whose outcome can be asked for."""

    def __init__(self, saga: Saga[I], name: str) -> None:
        super().__init__(saga, name)
        self.probe_spec: ProbeSpec | None = None

    @overload
    def probe(self, fn: ProbeFn[I, R], /) -> ProbeFn[I, R]: ...
    @overload
    def probe(
        self, *, settle: timedelta = SETTLE, give_up: timedelta = GIVE_UP
    ) -> Callable[[ProbeFn[I, R]], ProbeFn[I, R]]: ...
    def probe(
        self, fn: ProbeFn[I, R] | None = None, *, settle: timedelta = SETTLE, give_up: timedelta = GIVE_UP
    ) -> ProbeFn[I, R] | Callable[[ProbeFn[I, R]], ProbeFn[I, R]]:
        """Declare the function that asks the other side what became of a call whose answer was lost.

        It returns Found, Absent, InProgress or Failed; raising means that nothing was learned, and it is asked again.

        Args:
            fn: The function, when used without brackets.
            settle: "Absent" counts only that long after the doubted try's lease ended.
            give_up: After that long without an answer a person is asked.
        """

        def attach(probe: ProbeFn[I, R]) -> ProbeFn[I, R]:
            self._saga.open_for(f"probe of {self.name}")
            if self.probe_spec is not None:
                raise DefinitionError(
                    "MP110",
                    f"{self._saga.title}, {self.name}: a second probe. A step or wait has one; delete the other.",
                )
            check_async(self._saga.title, f"probe of {self.name}", probe)
            check_parameters(self._saga.title, f"probe of {self.name}", probe, "ctx")
            self.probe_spec = ProbeSpec(fn=probe, settle=settle, give_up=give_up)
            return probe

        return attach if fn is None else attach(fn)


class Step(Probed[I, R]):
    """A step: a function that acts outside, or in the database together with its checkpoint."""

    def __init__(
        self,
        saga: Saga[I],
        name: str,
        *,
        kind: StepKind,
        fn: AsyncFn | None,
        result: type[BaseModel] | None,
        repeat: Repeat,
        retry: Retry,
        attempt_timeout: timedelta,
        on_failure: OnFailure | None,
        no_undo: str | None,
        irreversible: bool,
        queue: str | None,
        limits: str | Sequence[str] = (),
        budget: Budget | None = None,
        window: timedelta | None = None,
    ) -> None:
        super().__init__(saga, name)
        self.window = window
        self.budget = budget
        self.limits = (limits,) if isinstance(limits, str) else tuple(limits)
        self.kind = kind
        self.fn = fn
        self.result = result
        self.repeat = repeat
        self.retry = retry
        self.attempt_timeout = attempt_timeout
        self.on_failure = on_failure
        self.no_undo = no_undo
        self.irreversible = irreversible
        self.queue = queue
        self.undo_node: Undo[I] | None = None

    @overload
    def undo(self, fn: UndoFn[I, R], /) -> Undo[I]: ...
    @overload
    def undo(
        self, *, risk: Risk = Risk.LOW, retry: Retry = UNDO_RETRY, detached: bool = False
    ) -> Callable[[UndoFn[I, R]], Undo[I]]: ...
    @overload
    def undo(
        self,
        *,
        blind: Literal[True],
        risk: Risk = Risk.LOW,
        retry: Retry = UNDO_RETRY,
        detached: bool = False,
    ) -> Callable[[BlindUndoFn[I, R]], Undo[I]]: ...
    def undo(
        self,
        fn: UndoFn[I, R] | None = None,
        *,
        blind: bool = False,
        risk: Risk = Risk.LOW,
        retry: Retry = UNDO_RETRY,
        detached: bool = False,
    ) -> Any:
        """Declare how the step is undone; the function receives the step's result and must be safe to repeat.

        Args:
            fn: The function, when used without brackets.
            blind: Run it also when it is not known whether the step took effect; it then receives None.
            risk: HIGH waits until a person approves it, CRITICAL until two do.
            retry: How often it is tried before a person is asked.
            detached: While it awaits a person, for approval or because it failed, the other undos go on.
        """

        def attach(undo: AsyncFn) -> Undo[I]:
            self._saga.open_for(f"undo of {self.name}")
            if self.undo_node is not None:
                raise DefinitionError(
                    "MP110",
                    f"{self._saga.title}, step {self.name}: a second undo. A step has one; delete the other.",
                )
            check_async(self._saga.title, f"undo of {self.name}", undo)
            check_parameters(self._saga.title, f"undo of {self.name}", undo, "ctx", "done")
            name = getattr(undo, "__name__", "")
            check_risk(f"{self._saga.title}, undo of {self.name}", risk)
            self.undo_node = Undo(
                name, of=self.name, fn=undo, retry=retry, blind=blind, risk=risk, detached=detached
            )
            self._saga.take_name(name, f"undo of {self.name}")
            return self.undo_node

        return attach if fn is None else attach(fn)


class Wait(Probed[I, E]):
    """A wait for an event; holds no worker."""

    def __init__(
        self,
        saga: Saga[I],
        name: str,
        *,
        event: type[E],
        match: Callable[[View[I]], str],
        timeout: timedelta,
        on_timeout: OnTimeout,
        broadcast: bool,
    ) -> None:
        super().__init__(saga, name)
        self.event = event
        self.match = match
        self.timeout = timeout
        self.on_timeout = on_timeout
        self.broadcast = broadcast


class Timer(Node[I, None]):
    """A wait for an instant; holds no worker."""

    def __init__(self, saga: Saga[I], name: str, *, due: timedelta | Callable[[View[I]], datetime]) -> None:
        super().__init__(saga, name)
        self.due = due


class CommandStep(Step[I, R]):
    """A command to a participant, and its reply."""

    def __init__(
        self,
        saga: Saga[I],
        name: str,
        *,
        send: Callable[[View[I]], Command[Any]],
        reply: type[Event],
        timeout: timedelta,
        repeat: Repeat,
        retry: Retry,
        on_failure: OnFailure | None,
        no_undo: str | None,
        irreversible: bool,
    ) -> None:
        super().__init__(
            saga,
            name,
            kind=StepKind.COMMAND,
            fn=None,
            result=reply,
            repeat=repeat,
            retry=retry,
            attempt_timeout=CALL_TIMEOUT,
            on_failure=on_failure,
            no_undo=no_undo,
            irreversible=irreversible,
            queue=None,
        )
        self.send = send
        self.reply = reply
        self.timeout = timeout


class ChildStep(Step[I, ChildRun]):
    """A run of another saga, and how it ends."""

    def __init__(
        self,
        saga: Saga[I],
        name: str,
        *,
        child: Saga[Any],
        input: Callable[[View[I]], BaseModel],
        on_failure: OnFailure | None,
        no_undo: str | None,
        irreversible: bool,
    ) -> None:
        super().__init__(
            saga,
            name,
            kind=StepKind.CHILD,
            fn=None,
            result=ChildRun,
            repeat=Repeat.SAFE,
            retry=Retry(attempts=1),
            attempt_timeout=CALL_TIMEOUT,
            on_failure=on_failure,
            no_undo=no_undo,
            irreversible=irreversible,
            queue=None,
        )
        self.child = ChildSpec(saga=child, input=input)
