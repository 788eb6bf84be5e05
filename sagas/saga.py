"""The `Saga` that a user writes: decorators that collect nodes, and `flow`, which checks and compiles them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel

from ..schemas.budget import Budget
from ..schemas.errors import DefinitionError
from ..schemas.events import Event
from ..schemas.options import OnFailure, Repeat, Retry
from ..schemas.states import Level, Priority, Risk, StepKind
from ..schemas.transaction import Transaction
from . import resuming
from .compiling import compile_saga
from .context import Context
from .declarations import Declarations
from .declaring import NODE_NAME, QUEUE_NAME, SAGA_NAME, check_name, declare_step
from .definition import Definition
from .functions import check_function, with_brackets
from .nodes import Node, Step
from .specs import AsyncFn, check_risk
from .versions import Past, Versioned

I = TypeVar("I", bound=BaseModel)  # noqa: E741
R = TypeVar("R", bound=BaseModel | None)
E = TypeVar("E", bound=Event)

#: The default of every step; an instance of its own, so that no call stands in a signature.
RETRY = Retry()


class Saga(Declarations[I], Versioned[I], Generic[I]):
    """A long business process as code: declare steps and waits, then put them in order with `flow`.

    Args:
        name: Name of the process, for people, tables and command line.
        version: Rises with every change of shape (names, kinds, order, schemas); runs finish on their own version.
        input: Class of the input.
        key: Business key of an input; starting twice with one key is one run.
        queue: Queue of its work unless a step says otherwise.
        lock: Names what a run with that input has for itself; of the runs of any saga that name the same, one at a time
            is active, from its start until it is final.
        if_locked: What becomes of a run whose lock another run has: it waits in a queue, or `start` refuses it.
        deadline: Pure function of the input: when the run has to stop, as an aware datetime. Asked once, at the start.
            Later the run stops at a safe boundary, is undone, and ends as EXPIRED.
        active_timeout: How long a run may be active in all, with the same end; waiting for an event or a person does
            not count.
        budget: What a run may spend in all; over it, a person is asked.
        severity: How bad it is when a run of it goes wrong, for people, lists and alarms; CRITICAL: what a person
            decides about its runs needs a second person.
        priority: How soon its work is taken, or a pure function of the input that says so.
        auto_repair: Up to which level its runs are repaired without asking a person.
        fingerprint: Pure function of the input that names what the result rests on (task, commit, prompt version, hash
            of files, policy version, mode), so that `start(..., reuse=True)` finds an equal run.

    Raises:
        DefinitionError: MP113 for a `key` or `lock` that is no function, MP114 for a name that topics or keys
            cannot hold, MP137 for a severity that is none.
    """

    def __init__(
        self,
        name: str,
        *,
        version: int,
        input: type[I],
        key: Callable[[I], str],
        queue: str = "default",
        lock: Callable[[I], str] | None = None,
        if_locked: Literal["queue", "reject"] = "queue",
        deadline: Callable[[I], datetime] | None = None,
        active_timeout: timedelta | None = None,
        priority: Priority | Callable[[I], Priority] = Priority.NORMAL,
        fingerprint: Callable[[I], Mapping[str, str | int | float | bool | None]] | None = None,
        budget: Budget | None = None,
        severity: Risk = Risk.MEDIUM,
        auto_repair: Level = Level.SAFE_RETRY,
    ) -> None:
        self.name = name
        self.version = version
        self.input = input
        self.key = key
        self.queue = queue
        self.lock = lock
        self.if_locked = if_locked
        self.deadline = deadline
        self.active_timeout = active_timeout
        self.priority = priority
        self.fingerprint = fingerprint
        self.revalidation: AsyncFn | None = None
        self.budget = budget
        self.severity = severity
        self.auto_repair = auto_repair
        self.nodes: list[Node[I, Any]] = []
        self.past = Past()
        self._names: dict[str, str] = {}
        self._definition: Definition | None = None
        check_name("saga", name, SAGA_NAME)
        check_name(f"{self.title}: queue", queue, QUEUE_NAME)
        check_risk(self.title, severity)
        check_function(self.title, "key", key, "order", "order.id")
        if lock is not None:
            check_function(self.title, "lock", lock, "order", "order.truck")
        if version < 1:
            raise DefinitionError("MP114", f"saga {name}: version={version} must be 1 or more.")

    def __repr__(self) -> str:
        return f"<Saga {self.title}>"

    @with_brackets
    def step(
        self,
        *,
        repeat: Repeat,
        window: timedelta | None = None,
        name: str | None = None,
        retry: Retry = RETRY,
        attempt_timeout: timedelta = timedelta(seconds=30),
        on_failure: OnFailure | None = None,
        no_undo: str | None = None,
        irreversible: bool = False,
        queue: str | None = None,
        limits: str | Sequence[str] = (),
        budget: Budget | None = None,
    ) -> Callable[[Callable[[Context[I]], Awaitable[R]]], Step[I, R]]:
        """Declare a step that acts outside.

        Args:
            repeat: May the call be repeated when its answer was lost?
            window: Of a SAFE step, how long the other side remembers a key, from its first call; None for always. What
                may have taken effect is not repeated later than that: its probe is asked, or a person.
            name: Instead of the function's name.
            retry: How often a failing call is tried.
            attempt_timeout: Longest time of one try.
            on_failure: What follows when it fails for good; COMPENSATE in a saga with an undo, else FAIL.
            no_undo: Why nothing needs undoing.
            irreversible: It cannot be undone, so nothing after it may compensate.
            queue: Another queue than the saga's.
            budget: What one try may spend; over it, a person is asked.
            limits: Rate limits of the service that its calls count for, those of its probe and its undo too.
        """

        def declare(fn: Callable[[Context[I]], Awaitable[R]]) -> Step[I, R]:
            return declare_step(
                self,
                fn,
                kind=StepKind.STEP,
                name=name,
                repeat=repeat,
                window=window,
                retry=retry,
                attempt_timeout=attempt_timeout,
                on_failure=on_failure,
                no_undo=no_undo,
                irreversible=irreversible,
                queue=queue,
                limits=limits,
                budget=budget,
            )

        return declare

    @with_brackets
    def tx_step(
        self,
        *,
        name: str | None = None,
        retry: Retry = RETRY,
        attempt_timeout: timedelta = timedelta(seconds=10),
        on_failure: OnFailure | None = None,
        no_undo: str | None = None,
    ) -> Callable[[Callable[[Context[I], Transaction], Awaitable[R]]], Step[I, R]]:
        """Declare a step whose SQL commits together with its checkpoint: exactly once.

        Args:
            name: Instead of the function's name.
            retry: How often it is tried; a failed try leaves nothing behind.
            attempt_timeout: Longest time of one try.
            on_failure: What follows when it fails for good; COMPENSATE in a saga with an undo, else FAIL.
            no_undo: Why nothing needs undoing.
        """

        def declare(fn: Callable[[Context[I], Transaction], Awaitable[R]]) -> Step[I, R]:
            return declare_step(
                self,
                fn,
                kind=StepKind.TX,
                name=name,
                repeat=Repeat.SAFE,
                retry=retry,
                attempt_timeout=attempt_timeout,
                on_failure=on_failure,
                no_undo=no_undo,
                irreversible=False,
            )

        return declare

    def revalidate(
        self, fn: Callable[[Context[I]], Awaitable[str | None]]
    ) -> Callable[[Context[I]], Awaitable[str | None]]:
        """Declare what is looked at before a run goes on that stood in front of a person.

        It may read clients and artifacts, and changes nothing. A text says what a person has to look at
        (REVIEW_REQUIRED), `raise Refused(code)` that the run cannot go on (RESUME_BLOCKED), None that all is well.

        Raises:
            DefinitionError: MP107, MP111, MP117 as for a step; MP127 for a second one.
        """
        resuming.declare(self, fn)
        return fn

    def flow(self, *nodes: Node[I, Any]) -> None:
        """Put the nodes in order, check the whole definition and compile it.

        Raises:
            DefinitionError: MP101 to MP105 and MP108 to MP116, each with its reason and fix.
        """
        self.open_for("flow(...)")
        self._definition = compile_saga(self, nodes)

    def take_name(self, name: str, what: str) -> None:
        """Reserve a name within the saga.

        Raises:
            DefinitionError: MP110 when taken, MP114 when unfit.
        """
        check_name(f"{self.title}, {what}: name", name, NODE_NAME)
        if name in self._names:
            raise DefinitionError(
                "MP110",
                f"{self.title}: {what} and {self._names[name]} have the same name. Steps, waits and undos share one "
                "set of names; rename one.",
            )
        self._names[name] = what
