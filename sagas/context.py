"""What the user's functions see: a pure `View` for lambdas, a `Context` for steps, probes and undos.

Nothing here reaches the outside world by itself: clients, the stop flag and the list of emitted events are handed in.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, overload
from uuid import UUID

from pydantic import BaseModel

from ..schemas.budget import Budget
from ..schemas.errors import DefinitionError, QualityFailed
from ..schemas.events import Event
from ..schemas.states import FINAL_STEP_STATES, StepState
from . import rounds
from .artifacts import Artifacts, HasArtifacts
from .model import Json, Run, Step
from .progress import read_progress
from .tree import relation

if TYPE_CHECKING:
    from .definition import Definition
    from .nodes import Node
    from .purse import Purse

I = TypeVar("I", bound=BaseModel)  # noqa: E741
R = TypeVar("R", bound=BaseModel | None)
T = TypeVar("T")
D = TypeVar("D")

_MISSING = object()


@dataclass(frozen=True, slots=True)
class RunRef:
    """Which run: its id, and the tenant, saga and business key that name it for people.

    `str(run)` is "saga/key", for example "order/o-1". `reused` says that `start` found an earlier run of equal
    fingerprint.
    """

    id: UUID
    tenant: str
    saga: str
    key: str
    reused: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        return f"{self.saga}/{self.key}"


class View(Generic[I]):
    """Everything that a `match` lambda may look at: the input, the run's name and the results so far.

    Args:
        definition: Compiled definition of the saga.
        run: The run with its step rows.
        reader: Name of the step or wait that looks, for error texts.
    """

    def __init__(self, definition: Definition, run: Run, *, reader: str = "") -> None:
        self._definition = definition
        self._run = run
        self._reader = reader
        self._input: I | None = None
        self._results: dict[str, Any] = {}

    @property
    def input(self) -> I:
        """The saga's input, as its model."""
        if self._input is None:
            self._input = cast(I, self._definition.decode_input(self._run.input, self._run.input_version))
        return self._input

    @property
    def run(self) -> RunRef:
        """Which run this is."""
        return RunRef(id=self._run.id, tenant=self._run.tenant, saga=self._run.saga, key=self._run.key)

    @overload
    def result(self, node: Node[I, R], /) -> R: ...
    @overload
    def result(self, node: Node[I, R], /, *, default: D) -> R | D: ...
    def result(self, node: Node[I, Any], /, *, default: Any = _MISSING) -> Any:
        """Return the result of a step, or the event of a wait, that has finished.

        Args:
            node: The step or wait.
            default: What to return when it has no result, for example after a wait that timed out with CONTINUE.

        Raises:
            DefinitionError: MP104 when it has no result and no default was given.
        """
        if node.name not in self._results:
            row = latest(self._run, node.name)
            compiled = self._definition.node(node.name)
            if compiled is None or row is None or row.state is not StepState.SUCCEEDED:
                if default is not _MISSING:
                    return default
                raise self._unread(node.name, row)
            self._results[node.name] = compiled.decode(row.result)
        return self._results[node.name]

    def _unread(self, name: str, row: Step | None) -> DefinitionError:
        title, reader = self._definition.title, self._reader
        if row is not None and row.state is StepState.SKIPPED:
            return DefinitionError(
                "MP104",
                f"{title}: {reader} reads the result of {name}, which was skipped or timed "
                f"out and left none. Say what to use instead: result({name}, default=None).",
            )
        if never_before(self._definition, reader, name):
            return reads_later(self._definition, reader, name)
        return DefinitionError(
            "MP104",
            f"{title}: {reader} reads the result of {name}, which has none in this run: its branch was not taken, was "
            f"given up, or failed. Say what to use instead: result({name}, default=None).",
        )


def latest(run: Run, name: str) -> Step | None:
    """Return the row of a node that counts for its readers: of those that are final that of the latest round."""
    rows = [step for step in run.steps if step.name == name and step.state in FINAL_STEP_STATES]
    return rows[-1] if rows else None


def never_before(definition: Definition, reader: str, name: str) -> bool:
    """Whether `name` can never have run when `reader` does; a reader that is an undo, or nobody, may read anything."""
    if definition.node(name) is None:
        return True
    here = definition.node(reader)
    if here is None or reader == name:
        return here is not None
    return relation(definition.flow, name, reader) in {"after", "beside", "instead"}


def reads_later(definition: Definition, reader: str, name: str) -> DefinitionError:
    """Build the MP104 error: `reader` reads the result of `name`, which has not run by then."""
    readers_node = definition.node(reader)
    what = "wait" if readers_node is not None and readers_node.wait is not None else "step"
    if definition.node(name) is None:
        why, fix = "which is not in its flow", f"Add {name} to the flow before {reader}."
    elif reader != name and readers_node is not None:
        stands = relation(definition.flow, name, reader)
        why = {"beside": "which runs beside it", "instead": "which runs only when it does not"}.get(
            stands, "which runs later"
        )
        fix = f"Move {reader} after {name}."
    else:
        why, fix = "which runs later", f"Move {reader} after {name}."
    return DefinitionError(
        "MP104",
        f"{definition.title}, {what} {reader} reads the result of {name}, {why}. Flow: {definition.flow_text}. {fix}",
    )


class Context(View[I], HasArtifacts):
    """What a step, a probe or an undo receives.

    Attributes:
        idempotency_key: Key of the operation, the same for every try: `{run}:{step}`, in a loop `{run}:{step}#{round}`,
            of an undo with `:undo` behind it.
        attempt: Which try this is, from 1.
    """

    idempotency_key: str
    attempt: int

    def __init__(
        self,
        definition: Definition,
        run: Run,
        *,
        reader: str,
        idempotency_key: str,
        attempt: int,
        use: Callable[[type[Any]], Any],
        emitted: list[Event],
        should_stop: Callable[[], bool],
        beat: Callable[[BaseModel | None], Awaitable[None]],
        purse: Purse,
        progress: Json = None,
        artifacts: Artifacts | None = None,
        iteration: str = "",
    ) -> None:
        """Build a context; the worker and the test kit do, users do not.

        Args:
            definition: Compiled definition of the saga.
            run: The run with its step rows, as claimed.
            reader: Name of the step, wait or undo that runs.
            idempotency_key: Key of the operation.
            attempt: Which try this is, from 1.
            use: Returns the client provided for a class.
            emitted: List to which emitted events are added.
            should_stop: Whether shutdown or cancel has been asked.
            beat: Stores a heartbeat.
            purse: Counts what is spent.
            progress: What the last heartbeat of an earlier try said, as JSON.
            artifacts: Writes and reads artifacts; None where there is no store.
            iteration: Which rounds of loops it is in.
        """
        super().__init__(definition, run, reader=reader)
        self.idempotency_key = idempotency_key
        self.attempt = attempt
        self._iteration = iteration
        self._use = use
        self._emitted = emitted
        self._should_stop = should_stop
        self._beat = beat
        self._purse = purse
        self._progress = progress
        self._artifacts = artifacts

    @property
    def round(self) -> int:
        """Which round of the innermost loop this is, from 1; 1 outside of loops."""
        return rounds.number(self._iteration)

    @property
    def fell_short(self) -> QualityFailed | None:
        """What ended the round before, if that was a step that raised QualityFailed: its `code` and `message`.

        None in the first round of a loop, after a round of which `until` said that it was not the last, and outside
        of loops.
        """
        return rounds.fell_short(self._definition, self._run, self._reader, self._iteration)

    def use(self, kind: type[T], /) -> T:
        """Return the client that the service provides for this class.

        Raises:
            UsageError: When nothing was provided for it.
        """
        return cast(T, self._use(kind))

    def emit(self, event: Event, /) -> None:
        """Publish an event together with this step's checkpoint, or not at all."""
        self._emitted.append(event)

    def should_stop(self) -> bool:
        """Whether the process was asked to stop, or the run goes no longer forward: it is cancelled, or out of time.

        A long step should then end at a safe place. A cancel is seen within a second by a step that asks again and
        again, and within a third of MILEPOST_LEASE by one that asks seldom. An undo and a probe are stopped by the
        end of their process only.
        """
        return self._should_stop()

    @property
    def budget(self) -> Budget:
        """What this try may still spend, by the budgets of its step and of its run; None where there is no limit."""
        return self._purse.left

    def spend(self, *, tokens: int = 0, cost: Decimal | int = 0, tool_calls: int = 0) -> None:
        """Say what this try has spent since it last said so; it counts also when the try fails.

        What a try said is lost with its process, unless it called `heartbeat` afterwards.

        Args:
            tokens: Of a model, for example.
            cost: In the service's own currency.
            tool_calls: Calls of tools.

        Raises:
            BudgetExceeded: MP360, more was spent than the budgets leave: let it end the step, which then stands in
                front of a person. Never raised in an undo or a probe.
            UsageError: MP359 for an amount that is none.
        """
        self._purse.spend(tokens=tokens, cost=cost, tool_calls=tool_calls)

    async def heartbeat(self, progress: BaseModel | None = None) -> None:
        """Say that the step is at work, and how far it has come; afterwards `should_stop` is up to date.

        It waits while the database is away and this process still holds the step. It does not prolong the attempt
        timeout.

        Args:
            progress: What the next try of this step may read with `progress`; small, at most 8,192 bytes of JSON.

        Raises:
            StateError: MP370 when the step was taken from this process: another one may be at it, so end at once.
            UsageError: MP371 when the progress is too large, MP372 in a transactional step or a probe, MP342 when it
                cannot be stored (a secret, for example).
        """
        await self._beat(progress)

    def progress(self, kind: type[T], /) -> T | None:
        """Return what the last heartbeat of an earlier try said, or None when none said anything.

        Args:
            kind: Class of the progress, a pydantic model.

        Raises:
            UsageError: MP373 when what was said is not of that class.
        """
        return read_progress(kind, self._progress, f"{self._definition.title}, step {self._reader}")
