"""The kit: what a test does to a service, and what it reads of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Literal, TypeVar, cast

from pydantic import BaseModel

from ..outbox.model import event_row
from ..sagas.context import RunRef
from ..sagas.nodes import Node, Undo
from ..sagas.saga import Saga
from ..schemas.errors import Refused, UsageError
from ..schemas.events import Event
from ..schemas.reading import read_stored
from ..schemas.states import FINAL_RUN_STATES, RunState, StepState
from .clients import KitClients
from .deciding import Deciding
from .faults import Faults
from .places import place_of, row_name
from .pump import Pump
from .replying import reply_row
from .reporting import NotReached
from .service import Opened
from .store import Sql
from .timeline import timeline

I = TypeVar("I", bound=BaseModel)  # noqa: E741
R = TypeVar("R", bound=BaseModel | None)
E = TypeVar("E", bound=Event)
T = TypeVar("T")

#: States that a change may pass within itself, and the history entry that tells so.
_PASSED_WITHIN = {
    StepState.PENDING: ["step.started"],
    StepState.RUNNING: ["step.started"],
    StepState.UNKNOWN: ["step.unknown"],
}
#: Pause while only something outside the kit could change anything, in seconds.
_IDLE = 0.02


class Kit(Deciding):
    """A service on a throwaway PostgreSQL, a recording Kafka and a stopped clock; made by `open_kit`.

    The real engine runs, but only inside `deliver`, `advance` and `until*`, and one thing at a time, so a test
    sees the same order every time. The clock starts at the present and stands still. `advance` moves it.
    `until` and `until_step` skip the delays of retries, probes and undos when nothing else can happen, but never
    move past the timeout of a wait or a person's reminder: those come with `advance` only. Jitter is steady: a
    delay is half of its bound.
    """

    def __init__(self, opened: Opened) -> None:
        self._opened = opened
        self._service = opened.service
        self._faults = Faults()
        self._clients = KitClients(opened.service.name)
        self._pump = Pump(opened, self._clients.get, self._faults)
        self._turn = asyncio.Lock()

    # --- what surrounds the service ----------------------------------------------------------------

    def provide(self, kind: type[T], instance: T) -> None:
        """Give steps this instance for `ctx.use(kind)`. The service's own factories are never used in a kit.

        Args:
            kind: Class that steps ask for.
            instance: Usually a fake; may be given anew at any time.
        """
        self._clients.put(kind, instance)

    def fail(self, step: Node[Any, Any] | Undo[Any], *, code: str, times: int | None = None) -> None:
        """Refuse a step or an undo for good instead of calling it, as if it raised `Refused(code)`.

        Args:
            step: What is refused.
            code: Code of the refusal.
            times: How many calls are refused; None for all from now on, 0 for none any more.

        Raises:
            UsageError: MP350 when it is none of the service's, MP352 for a wait.
        """
        self._faults.refuse(place_of(self._service, step, "fail"), code, times)

    def lose_reply(self, step: Node[Any, Any], *, times: int = 1) -> None:
        """Call a step, and let its answer get lost on the way: the effect happens, the caller times out.

        A call that raises keeps its own error and is not counted.

        Args:
            step: Whose answer is lost.
            times: How many answers.

        Raises:
            UsageError: MP350, MP352 as `fail`.
        """
        self._faults.lose(place_of(self._service, step, "lose_reply"), times)

    def crash(self, step: Node[Any, Any], *, when: Literal["before", "after_effect", "after_record"]) -> None:
        """Let the worker process die, once, at the next call of a step; another process takes over.

        The dead process stores nothing more and its lease ends at that moment, so the step is found at once.

        Args:
            step: At which step.
            when: "before" its function is called; "after_effect", when it has returned and nothing is stored (for a
                tx_step: not committed); "after_record", when the outcome is stored, with the next step already claimed
                by the dying process.

        Raises:
            UsageError: MP350, MP352 as `fail`.
        """
        self._faults.crash(place_of(self._service, step, "crash"), when)

    # --- what happens ------------------------------------------------------------------------------

    async def start(self, saga: Saga[I], input: I, *, reuse: bool = False) -> RunRef:
        """Start a run in a transaction of its own, as `Milepost.start`; it moves with `until` or `advance`."""
        async with self._service.transaction() as tx:
            return await self._service.start(tx, saga, input, reuse=reuse)

    async def deliver(self, event: Event, *, copies: int = 1) -> None:
        """Let an event arrive from outside, and its handlers and waits take it; returns when they have.

        A run that it resumes goes on with the next `until` or `advance`.

        Args:
            event: The event; it gets a new id.
            copies: How often the same event, with the same id, arrives.

        Raises:
            UsageError: MP353 when neither a consumer nor a wait of the service reads its topic.
        """
        topic = event.milepost_spec.topic
        if not self._pump.reads(topic):
            raise UsageError(
                "MP353",
                f"kit.deliver({type(event).__name__}): no consumer and no wait of service {self._service.name} reads "
                f"topic {topic!r}, so nothing would happen. Add a handler or a wait for it.",
            )
        row = event_row(event, ids=self._service.ids, clock=self._service.clock)
        async with self._turn:
            await self._pump.deliver([row] * copies)

    async def reply(self, run: RunRef, step: Node[Any, Any] | Undo[Any], answer: Event | Refused) -> None:
        """Let the participant answer the latest attempt of a command, or of the command that an undo has sent.

        Args:
            run: Which run.
            step: The command's node, or its undo.
            answer: The reply, or why it is refused. For a participant that has nothing to undo give any reply.

        Raises:
            UsageError: MP350 when it is none of the run's saga, MP391 when the run has sent no such command.
        """
        name = row_name(self._service, run, step)
        row = await self._opened.database.pool.fetchrow(Sql.sent_command, run.id, name)
        if row is None:
            raise UsageError(
                "MP391",
                f"kit.reply({name}): {run} has sent no such command. Move it there with kit.until_step first.",
            )
        async with self._turn:
            await self._pump.deliver([reply_row(self._service, run.id, row, answer)])

    async def advance(self, by: timedelta) -> None:
        """Move the clock forward, from one due instant to the next, and let everything happen that is due at each.

        `advance(timedelta(0))` lets happen what is due now.

        Args:
            by: How far.

        Raises:
            UsageError: MP354 for a negative time, MP351 when a step asked for a client that the kit does not have.
        """
        if by < timedelta(0):
            raise UsageError(
                "MP354", f"kit.advance({by}): time does not run backwards. Give a positive duration."
            )
        target = self._opened.clock.now() + by
        async with self._turn:
            await self._settle()
            while (due := await self._pump.next_due()) is not None and due <= target:
                await self._pump.set_clock(max(due, self._opened.clock.now()))
                await self._settle()
            await self._pump.set_clock(target)

    async def until(self, run: RunRef, state: RunState, *, within: timedelta = timedelta(seconds=10)) -> None:
        """Let the service work until the run has been in a state; one that it has passed through counts.

        Delays of retries, probes and undos are skipped, timeouts of waits are not (see the class).

        Args:
            run: Which run.
            state: The state.
            within: Longest wait in real time.

        Raises:
            NotReached: An AssertionError that shows the run's timeline.
            UsageError: MP355 for a run that does not exist, MP351 as `advance`.
        """

        __tracebackhide__ = True  # what the test's author needs is the test's own line and the timeline

        async def passed() -> bool:
            return bool(await self._opened.database.pool.fetchval(Sql.passed_run, run.id, state.value))

        await self._until(run, passed, f"{run} has not been {state.value}", within)

    async def until_step(
        self,
        run: RunRef,
        step: Node[Any, Any] | Undo[Any],
        state: StepState,
        *,
        within: timedelta = timedelta(seconds=10),
    ) -> None:
        """Let the service work until a step, wait or undo of the run has been in a state; as `until`.

        Raises:
            NotReached: An AssertionError that shows the run's timeline.
            UsageError: MP350 when it is none of the run's saga, MP355 and MP351 as `until`.
        """
        __tracebackhide__ = True
        name, events = row_name(self._service, run, step), _PASSED_WITHIN.get(state, [])

        async def passed() -> bool:
            pool = self._opened.database.pool
            return bool(await pool.fetchval(Sql.passed_step, run.id, name, state.value, events))

        await self._until(run, passed, f"{name} of {run} has not been {state.value}", within)

    # --- what is there -----------------------------------------------------------------------------

    async def result(self, run: RunRef, node: Node[I, R]) -> R:
        """Return the result of a step that has succeeded, or the event that satisfied a wait.

        Of a step in a loop it is that of the latest round that has one.

        Raises:
            NotReached: It has none; shows the run's timeline.
            UsageError: MP350 and MP355 as `until_step`.
        """
        name = row_name(self._service, run, node)
        await self._known(run)
        row = await self._opened.database.pool.fetchrow(Sql.step_result, run.id, name)
        if row is None or row["state"] != StepState.SUCCEEDED:
            found = "has not begun" if row is None else f"is {row['state']}"
            raise NotReached(f"{name} of {run} {found}, so it has no result\n\n{await self._timeline(run)}")
        compiled = node.saga.definition.node(name)
        assert compiled is not None, "row_name has found it"
        return cast(R, compiled.decode(None if row["result"] is None else json.loads(row["result"])))

    async def published(self, event: type[E]) -> list[E]:
        """Return all events of a class that the service has published and committed, in order."""
        rows = await self._opened.database.pool.fetch(Sql.published, event.milepost_spec.type)
        return [read_stored(event, row["payload"], json.loads(row["headers"])) for row in rows]

    # --- inside ------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Start the pretended worker process; `open_kit` does."""
        await self._pump.begin()

    async def end(self) -> None:
        """Cancel what still runs; `open_kit` does."""
        await self._pump.end()

    async def _settle(self) -> None:
        while await self._pump.turn(float("inf")):
            self._clients.check()

    async def _until(
        self, run: RunRef, passed: Callable[[], Awaitable[bool]], what: str, within: timedelta
    ) -> None:
        __tracebackhide__ = True
        await self._known(run)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within.total_seconds()
        while not await passed():
            async with self._turn:
                moved = await self._pump.turn(deadline) or await self._pump.skip_delay()
            self._clients.check()
            late = loop.time() >= deadline
            if late or (not moved and await self._over(run) and not await passed()):
                why = f" within {within.total_seconds():g} s" if late else ", and it is over"
                raise NotReached(f"{what}{why}\n\n{await self._timeline(run)}")
            if not moved:
                await asyncio.sleep(_IDLE)

    async def _over(self, run: RunRef) -> bool:
        return RunState(await self._known(run)) in FINAL_RUN_STATES

    async def _timeline(self, run: RunRef) -> str:
        async with self._opened.database.pool.acquire() as connection:
            return await timeline(connection, run.id)
