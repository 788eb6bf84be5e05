"""Calling the user's functions: context, attempt timeout, lease check; what came of it as a fact."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

from ..sagas.context import Context
from ..sagas.definition import Definition, Node, operation_key, result_of
from ..sagas.facts import (
    Fact,
    HandedBack,
    ProbeAbsent,
    ProbeAnswer,
    Probed,
    ProbeError,
    ProbeFailed,
    ProbeFound,
    ProbeInProgress,
    Succeeded,
    TryFailed,
    Verdict,
)
from ..sagas.model import Json, Run, Step
from ..sagas.purse import Purse
from ..sagas.standing import partly_done
from ..sagas.words import BAD_ANSWER, WORKER_LOST, bad_answer
from ..schemas.artifacts import Artifact
from ..schemas.budget import BudgetExceeded
from ..schemas.commands import Command
from ..schemas.errors import UsageError
from ..schemas.events import Event
from ..schemas.options import Absent, Failed, Found, InProgress
from ..schemas.states import StepKind, StepState
from .artifacts import CallArtifacts, Keeping
from .classify import Classified, classify, quotes
from .lease import LeaseLost
from .pulse import Pulse, StepTaken

logger = logging.getLogger("milepost")

T = TypeVar("T")


async def just_call(call: Call, act: Callable[[], Awaitable[Any]]) -> Any:
    """Call the user's function and nothing else."""
    return await act()


@dataclass(frozen=True, kw_only=True)
class Tools:
    """What calls need from the process.

    Args:
        clients: Opened clients by class.
        verdicts: The service's own classification.
        check_lease: Raises LeaseLost when this process may no longer act under the given lease.
        stopping: Whether a stop was asked for.
        pulse: Answers what steps ask while they run.
        max_result_bytes: Largest result, in bytes of JSON.
        keeping: Where artifacts are kept; None for nowhere.
        around: Stands around every call of a user's function; the test kit's makes calls fail.
    """

    clients: Callable[[type[Any]], Any]
    verdicts: Mapping[type[Exception], tuple[Verdict, str]]
    check_lease: Callable[[UUID | None], None]
    stopping: Callable[[], bool]
    pulse: Pulse
    max_result_bytes: int
    keeping: Keeping | None = None
    around: Callable[[Call, Callable[[], Awaitable[Any]]], Awaitable[Any]] = just_call


@dataclass
class Call:
    """One claimed try of a step, a probe or an undo.

    Args:
        definition: The saga's compiled definition.
        run: The run as claimed.
        step: The claimed row.
    """

    definition: Definition
    run: Run
    step: Step
    tools: Tools

    def __post_init__(self) -> None:
        self.emitted: list[Event] = []
        self.begun = False
        node = self.definition.node(self.step.undo_of or self.step.name)
        assert node is not None, "a claim is only made for a node of the definition"
        #: The step or wait that is called, undone or asked about.
        self.node: Node = node
        self.purse = Purse(self.definition, self.node, self.run, self.step)
        keeping = self.tools.keeping
        self.artifacts: CallArtifacts | None = None
        if keeping is not None:
            self.artifacts = CallArtifacts(
                keeping, self.run, self.step, lambda: self.tools.check_lease(self.step.worker)
            )

    @property
    def is_undo(self) -> bool:
        """Whether this is an undo."""
        return self.step.kind is StepKind.UNDO

    @property
    def is_settling(self) -> bool:
        """Whether an unknown outcome is asked for."""
        return self.step.state is StepState.RECONCILING

    def context(self) -> Context[Any]:
        """Return what the user's function receives; its clients are checked against the lease."""

        def use(kind: type[T]) -> T:
            self.tools.check_lease(self.step.worker)
            client: T = self.tools.clients(kind)
            return client

        return Context(
            self.definition,
            self.run,
            reader=self.step.name,
            idempotency_key=operation_key(
                self.run.id, self.node.name, self.step.iteration, undo=self.is_undo
            ),
            attempt=self.step.attempt,
            use=use,
            emitted=self.emitted,
            should_stop=lambda: self.tools.pulse.should_stop(self),
            beat=lambda progress: self.tools.pulse.beat(self, progress),
            progress=self.step.progress,
            purse=self.purse,
            artifacts=self.artifacts,
            iteration=self.step.iteration,
        )

    def recorded(self, fact: Fact) -> list[Artifact]:
        """Return the artifacts that are recorded with a fact: of a call that succeeded, or a probe that found."""
        done = isinstance(fact, Succeeded) or (
            isinstance(fact, Probed) and isinstance(fact.answer, ProbeFound)
        )
        return list(self.artifacts.made) if done and self.artifacts is not None else []

    async def outside(self) -> Fact:
        """Call the user's function and say what came of it; never raises, not even when cancelled."""
        if self.is_settling:
            return await self._settle()
        try:
            value = await self.within_timeout(self._target)
            result = None if self.is_undo else self.encode(value)
        except (Exception, asyncio.CancelledError) as error:
            return self.failed(error)
        return self.succeeded(result)

    def succeeded(self, result: Json, *, items: int = 0) -> Succeeded:
        """Say that the try returned; of a fan-out, with so many items."""
        step, awaits = self.step, any(map(self.undoes_by, self.emitted))
        spent = self.purse.spent
        return Succeeded(
            step.name, step.fence, result, step.iteration, spent=spent, awaits_reply=awaits, items=items
        )

    def undoes_by(self, event: Event) -> bool:
        """Whether an emitted event is the command by which this undo has a participant undo what it did."""
        return self.is_undo and self.node.command is not None and isinstance(event, Command)

    async def within_timeout(self, call: Callable[[Context[Any]], Awaitable[Any]]) -> Any:
        """Run a function under the node's attempt timeout, after a last look at the lease."""
        context, most, budgeted = self.context(), self.node.attempt_timeout, self.purse.runtime
        limit = most if budgeted is None else min(most, budgeted)
        timer = asyncio.timeout(limit.total_seconds())
        try:
            async with timer:
                self.tools.check_lease(self.step.worker)
                self.begun = True
                self.tools.pulse.begun()
                try:
                    return await self.tools.around(self, lambda: call(context))
                finally:
                    self.tools.pulse.ended()
        except TimeoutError:
            if timer.expired() and limit < most:
                self.purse.out_of_time()
            raise

    def encode(self, value: Any) -> Json:
        """Return a result as JSON.

        Raises:
            UsageError: MP320 and MP321 when it cannot be stored, MP322 when it is too large.
        """
        encoded, size = result_of(self.definition, self.node, value)
        if size > self.tools.max_result_bytes:
            raise UsageError(
                "MP322",
                f"{self.definition.title}, step {self.node.name}: result of {size} bytes is over "
                f"MILEPOST_MAX_RESULT_BYTES={self.tools.max_result_bytes}. Return a reference, and keep the data "
                "elsewhere.",
            )
        return encoded

    def failed(self, error: BaseException) -> Fact:
        """Say what an exception of the try means."""
        name, fence = self.step.name, self.step.fence
        more: Any = {"iteration": self.step.iteration, "spent": self.purse.spent}
        if isinstance(error, asyncio.CancelledError | LeaseLost):
            if not self.begun:
                return self.unbegun()
            code, words = self._cancelled()
            return TryFailed(name, fence, "unknown", code, words, **more)
        found = self._told(error)
        over = self.purse.over if isinstance(error, BudgetExceeded | TimeoutError) else ""
        return TryFailed(
            name, fence, found.verdict, found.code, found.message, found.retry_after, over=over, **more
        )

    def unbegun(self) -> Fact:
        """Say that the user's function was not called."""
        return HandedBack(self.step.name, self.step.fence, iteration=self.step.iteration)

    def _cancelled(self) -> tuple[str, str]:
        """Say why a call was cancelled, as code and words."""
        if self.tools.stopping():
            return "SHUTDOWN", "cancelled at the end of the grace time"
        return WORKER_LOST, "cancelled because the lease of its process ran out"

    async def _target(self, context: Context[Any]) -> Any:
        undo = self.node.undo
        if self.is_undo:
            assert undo is not None, "an undo row exists only for a step with an undo"
            undone = self.run.step(self.node.name, self.step.iteration)
            known = undone is not None and (undone.state is StepState.SUCCEEDED or partly_done(undone))
            done = undone.result if undone is not None and known else None
            return await undo.fn(context, None if done is None else self.node.decode(done))
        assert self.node.fn is not None, "only steps are called"
        return await self.node.fn(context)

    async def _settle(self) -> Fact:
        try:
            answer = await self._ask()
        except (Exception, asyncio.CancelledError) as error:
            answer = self._unanswered(error)
        return Probed(
            self.step.name, self.step.fence, answer, iteration=self.step.iteration, spent=self.purse.spent
        )

    async def _ask(self) -> ProbeAnswer:
        """Ask the probe; a SAFE step without one is repeated under its own key, which tells the result."""
        probe = self.node.probe
        if probe is None:
            value = await self.within_timeout(self._target)
            return ProbeFound(self.encode(value))
        answer = await self.within_timeout(probe.fn)
        match answer:
            case Found():
                return ProbeFound(self.encode(answer.value))
            case Absent():
                return ProbeAbsent()
            case InProgress():
                return ProbeInProgress(answer.ask_again)
            case Failed():
                return ProbeFailed(answer.code)
            case _:
                self._say(BAD_ANSWER, bad_answer(answer), None)
                return ProbeError(BAD_ANSWER, bad_answer(answer))

    def _unanswered(self, error: BaseException) -> ProbeAnswer:
        if isinstance(error, asyncio.CancelledError | LeaseLost):
            return ProbeError(*self._cancelled())
        found = self._told(error)
        # The repeat of a SAFE step is the same call under the same key, so that its work is that of the tries before.
        if self.node.probe is None and found.verdict in {"fatal", "quality"}:
            return ProbeFailed(found.code)
        return ProbeError(found.code, found.message)

    def _told(self, error: BaseException) -> Classified:
        """Classify an exception, and say it in the log; with its traceback when nobody listed it."""
        found = self._classify(error)
        listed = found.code != type(error).__name__.upper()
        self._say(found.code, found.message, None if listed or quotes(error) else error)
        return found

    def _say(self, code: str, message: str, error: BaseException | None) -> None:
        logger.warning(
            "%s/%s %s, try %d: %s %s",
            self.run.saga,
            self.run.key,
            self.step.name,
            self.step.attempt,
            code,
            message,
            exc_info=error,
        )

    def _classify(self, error: BaseException) -> Classified:
        if isinstance(error, UsageError | StepTaken | BudgetExceeded):
            return Classified("unknown", error.code, error.text[:2000])
        return classify(error, self.tools.verdicts)
