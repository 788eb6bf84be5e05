"""The nodes of a saga that wait without a worker: for an event, an instant, a reply, or persons."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from pydantic import BaseModel

from ..schemas.children import ChildRun
from ..schemas.commands import Command
from ..schemas.events import Event
from ..schemas.fanout import FanOut
from ..schemas.options import OnFailure, OnReject, OnTimeout, Repeat, Retry, Then
from ..schemas.states import Risk
from . import each
from .approvals import Approval, declare
from .context import Context, View
from .functions import check_function
from .nodes import ChildStep, CommandStep, Node, Step, Timer, Wait

if TYPE_CHECKING:
    from .saga import Saga

I = TypeVar("I", bound=BaseModel)  # noqa: E741
E = TypeVar("E", bound=Event)
J = TypeVar("J", bound=BaseModel)

#: How often a command is sent before nobody is expected to reply any more.
RETRY = Retry(within=None)
#: Longest time of one reading of a list of items, and how often it is read.
LISTING = timedelta(minutes=5)
LISTED_AGAIN = Retry()


class Declarations(Generic[I]):
    """What `Saga` offers beside steps."""

    @property
    def _own(self) -> Saga[I]:
        return cast("Saga[I]", self)

    def wait(
        self,
        name: str,
        event: type[E],
        /,
        *,
        match: Callable[[View[I]], str],
        timeout: timedelta,
        on_timeout: OnTimeout,
        broadcast: bool = False,
    ) -> Wait[I, E]:
        """Declare a wait for an event whose correlation field equals what `match` returns.

        Args:
            name: Name of the wait.
            event: Class of the event; it declares `correlate=`. The event is the wait's result.
            match: Pure function of input and results so far.
            timeout: How long to wait, from when the wait begins.
            on_timeout: What follows then.
            broadcast: One event satisfies every run that waits for it, not only the oldest wait.
        """
        saga = self._own
        saga.open_for(f"wait {name}")
        check_function(f"{saga.title}, wait {name}", "match", match, "view", "view.input.id")
        wait: Wait[I, E] = Wait(
            saga, name, event=event, match=match, timeout=timeout, on_timeout=on_timeout, broadcast=broadcast
        )
        saga.take_name(name, f"wait {name}")
        saga.nodes.append(wait)
        return wait

    def timer(self, name: str, /, due: timedelta | Callable[[View[I]], datetime]) -> Node[I, None]:
        """Declare a timer: the run goes on when its time has come.

        Args:
            name: Name of the timer.
            due: How long from when it begins, or a pure function that returns the instant, as an aware datetime; see
                `wall_clock` for a time of the day in a zone. An instant that has passed is now.
        """
        saga = self._own
        saga.open_for(f"timer {name}")
        if not isinstance(due, timedelta):
            check_function(f"{saga.title}, timer {name}", "due", due, "view", "view.input.due")
        timer: Timer[I] = Timer(saga, name, due=due)
        saga.take_name(name, f"timer {name}")
        saga.nodes.append(timer)
        return timer

    def command(
        self,
        name: str,
        send: Callable[[View[I]], Command[E]],
        /,
        *,
        reply: type[E],
        timeout: timedelta,
        repeat: Repeat,
        retry: Retry = RETRY,
        on_failure: OnFailure | None = None,
        no_undo: str | None = None,
        irreversible: bool = False,
    ) -> Step[I, E]:
        """Declare a command to a participant; the run goes on with its reply, which is the node's result.

        It is undone by another command that its undo emits (`ctx.emit(CancelTruck(...))`); the undo is done when the
        participant has replied to that.

        Args:
            name: Name of the node, of at most 150 characters; with the run's id it names the operation.
            send: Pure function of input and results so far that makes the command; asked again for every attempt.
            reply: Class of the reply, the command's own.
            timeout: How long a reply is waited for.
            repeat: What follows then. SAFE: it is sent again, as the participant does each operation once. ASK_FIRST:
                the probe is asked. NEVER: a person is.
            retry: How often a SAFE command is sent; its pauses do not count, `timeout` is the pause.
            on_failure: What follows a refusal; COMPENSATE in a saga with an undo, else FAIL.
            no_undo: Why nothing needs undoing.
            irreversible: It cannot be undone, so nothing after it may compensate.
        """
        saga = self._own
        saga.open_for(f"command {name}")
        check_function(f"{saga.title}, command {name}", "send", send, "view", "BookTruck(...)")
        step: CommandStep[I, E] = CommandStep(
            saga,
            name,
            send=send,
            reply=reply,
            timeout=timeout,
            repeat=repeat,
            retry=retry,
            on_failure=on_failure,
            no_undo=no_undo,
            irreversible=irreversible,
        )
        saga.take_name(name, f"command {name}")
        saga.nodes.append(step)
        return step

    def approval(
        self,
        name: str,
        /,
        *,
        roles: frozenset[str],
        expires: timedelta,
        on_reject: OnReject,
        risk: Risk = Risk.HIGH,
        on_expiry: OnTimeout = Then.PERSON,
        quorum: int = 1,
        params: Callable[[View[I]], BaseModel] | None = None,
    ) -> Approval[I]:
        """Declare a question to persons; the flow goes on when they have approved.

        Args:
            name: Name of the approval.
            roles: Who approves or rejects needs one of them.
            expires: How long the question stands, from when it is asked.
            on_reject: What follows one rejection; CONTINUE goes on with `approved=False` in the result.
            risk: CRITICAL needs two persons at least, none of whom had asked for it.
            on_expiry: What follows when it has expired; RETRY asks once more, then a person.
            quorum: So many different persons have to approve, from 1 to 20.
            params: Pure function of input and results: what is approved, at most 8,192 bytes of JSON. When it returns
                something else by the time of an approval, or when what follows begins, approvals are void and the
                question is asked anew. The run's input by default.

        Raises:
            DefinitionError: MP110, MP111, MP114, MP135, MP137.
        """
        return declare(
            self._own,
            name,
            roles=roles,
            risk=risk,
            quorum=quorum,
            expires=expires,
            on_expiry=on_expiry,
            on_reject=on_reject,
            params=params,
        )

    def child(
        self,
        name: str,
        saga: Saga[J],
        /,
        *,
        input: Callable[[View[I]], J],
        on_failure: OnFailure | None = None,
        no_undo: str | None = None,
        irreversible: bool = False,
    ) -> Step[I, ChildRun]:
        """Declare a child: a run of another saga of this service, which is started and waited for.

        The child is named by its own key. One that is there already with the same input is waited for, or, when it has
        ended, taken as it is; so one run may depend on another that somebody else starts. When it fails, so does the
        node. When the run stops meanwhile, the child that it has started is cancelled, and undone where the run is.

        Args:
            name: Name of the node.
            saga: The child's saga.
            input: Pure function of input and results so far that makes the child's input.
            on_failure: What follows when the child ends badly; COMPENSATE in a saga with an undo, else FAIL.
            no_undo: Why nothing needs undoing. An undo (`@node.undo`) gets the `ChildRun`.
            irreversible: It cannot be undone, so nothing after it may compensate.
        """
        own = self._own
        own.open_for(f"child {name}")
        check_function(f"{own.title}, child {name}", "input", input, "view", "view.input")
        node: ChildStep[I] = ChildStep(
            own,
            name,
            child=saga,
            input=input,
            on_failure=on_failure,
            no_undo=no_undo,
            irreversible=irreversible,
        )
        own.take_name(name, f"child {name}")
        own.nodes.append(node)
        return node

    def each(
        self,
        name: str,
        saga: Saga[J],
        /,
        *,
        items: Callable[[Context[I]], AsyncIterator[J]],
        concurrency: int = 20,
        min_success: float = 1.0,
        retry: Retry = LISTED_AGAIN,
        attempt_timeout: timedelta = LISTING,
        on_failure: OnFailure | None = None,
        no_undo: str | None = None,
        irreversible: bool = False,
        queue: str | None = None,
    ) -> Step[I, FanOut]:
        """Declare a fan-out: a run of another saga of this service for each item of a list, however long that is.

        The list is read once, by a worker, and stored as a whole. Each item is named by the key that its saga gives it,
        and is a run like any other; one that is there already with the same input is joined. An item that fails does
        not keep the others from going on. If at the end enough have succeeded, the node has, and where some have failed
        the run ends as PARTIALLY_SUCCEEDED. When the run stops meanwhile, no more items are begun, and those under way
        are cancelled, and undone where the run is.

        Args:
            name: Name of the node.
            saga: The saga of the items.
            items: Async generator that yields the input of each; it may do IO, and has no effects outside. Items of
                equal key and input are one.
            concurrency: Most items that are under way at once.
            min_success: Share of the items that has to succeed, from 0 to 1.
            retry: How often the list is read when that fails.
            attempt_timeout: Longest time of reading it once.
            on_failure: What follows when too few items succeed; COMPENSATE in a saga with an undo, else FAIL. With
                PERSON, `milepost runs retry` begins the failed items again, and no others.
            no_undo: Why nothing needs undoing. An undo (`@node.undo`) gets the `FanOut`, also of a node that failed
                while some of its items succeeded.
            irreversible: It cannot be undone, so nothing after it may compensate.
            queue: Queue of the worker that reads the list.

        Raises:
            DefinitionError: MP110, MP111, MP114, MP117, MP142.
        """
        return each.declare(
            self._own,
            name,
            saga,
            items=items,
            concurrency=concurrency,
            min_success=min_success,
            retry=retry,
            attempt_timeout=attempt_timeout,
            on_failure=on_failure,
            no_undo=no_undo,
            irreversible=irreversible,
            queue=queue,
        )
