"""The worker: claims announced steps while it has a free slot, calls them, stores what came of it, goes on inline."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

from pydantic import ValidationError

from ..sagas.definition import operation_key
from ..sagas.model import Step
from ..schemas.envelope import NotAnEvent, Record, read_event
from ..schemas.messages import WorkMessage, priority_of
from ..schemas.states import Priority, StepKind, StepState
from ..streams.database import Database
from ..streams.reader_lane import getting_on
from ..streams.tracing import span
from .attempts import Attempt, Claimed
from .calls import Call, Tools
from .changes import InlineClaim
from .claiming import Claims
from .engine import Engine, Stopping, raise_passing
from .finishing import finish, finish_transactional
from .gates import Gate
from .handing import HandedOver, Message
from .lease import HAND_BACK, Lease
from .listing import finish_listing
from .slots import Slots, Ticket

logger = logging.getLogger("milepost")

#: How often a claim that waits for a slot or the lease looks whether a stop was asked for, in seconds.
LOOK = 0.1
#: One slot in so many is filled with what a process could have before all others.
SHARE = 4


class Worker:
    """Handles work and compensation topics of one queue.

    Args:
        engine: Decides and stores.
        database: For transactional steps.
        lease: Claims are made under its id.
        tools: What the user's functions need.
        queue: Which queue's topics it serves.
        slots: Steps at once, and how many of these only work of high priority may have.
        room: Transactional steps at once, shared by the workers of a process: each holds a connection.
        gate: Rate limits, asked before a claim.
    """

    def __init__(
        self,
        engine: Engine,
        database: Database,
        lease: Lease,
        tools: Tools,
        *,
        queue: str,
        slots: Slots,
        room: Slots,
        gate: Gate,
    ) -> None:
        self._engine = engine
        self._database = database
        self._lease = lease
        self._tools = tools
        self._queue = queue
        self._slots = slots
        self._room = room
        self._gate = gate
        self._claims = Claims(engine, lease)
        self._claiming: set[asyncio.Task[bool]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._begun: set[asyncio.Task[None] | None] = set()
        self._allowed = False
        self._closing = False
        lease.on_lost(self.cancel)

    def allow(self) -> None:
        """Claims may begin: the clients are open."""
        self._allowed = True

    async def handle(self, records: Sequence[Record]) -> None:
        """Claim what the messages announce; returns when each has been claimed or was not to be had.

        Raises:
            Stopping: A stop was asked for before all were claimed.
        """
        messages = {
            message: priority_of(record.topic)
            for record in records
            if (message := _message(record)) is not None
        }
        taking = (self.take(message, priority) for message, priority in messages.items())
        results = await asyncio.gather(*taking, return_exceptions=True)
        raise_passing(
            (f"{message.step} of run {message.run}", result)
            for message, result in zip(messages, results, strict=True)
        )

    async def take(self, message: WorkMessage, priority: Priority = Priority.NORMAL) -> bool:
        """Claim one step as soon as a slot is free, and run it in the background.

        Returns:
            Whether the claim was made; False when somebody else has it or it is no longer to be done.

        Raises:
            Stopping: A stop was asked for first.
        """
        slot = await self._slot(priority)
        # Who hands us messages may be cancelled at any time; a claim that is under way is seen through all the same.
        return await asyncio.shield(self._claim(message, slot))

    def offer(self, message: WorkMessage, priority: Priority) -> asyncio.Task[bool] | None:
        """Begin to claim one step if there is a slot for it now; beside other processes only if few steps run here.

        Returns:
            What says whether the claim was made, as `take` does, or raises what was in its way; None without a slot.
        """
        if self._tools.stopping() or not self._allowed or not self._lease.held():
            return None
        if self._engine.changes.definitions.get(message.saga, message.definition) is None:
            return None  # another process may hear of it that has the definition
        if not self._lease.alone and self._slots.taken >= max(1, self._slots.total // SHARE):
            return None
        slot = self._slots.take(priority)
        return None if slot is None else self._claim(message, slot)

    def _claim(self, message: WorkMessage, slot: Ticket) -> asyncio.Task[bool]:
        claiming = asyncio.create_task(self._take(message, slot))
        self._claiming.add(claiming)
        claiming.add_done_callback(self._claiming.discard)
        return claiming

    async def _take(self, message: WorkMessage, slot: Ticket) -> bool:
        """Claim with a slot in hand; the slot goes to the task that works, or is free again."""
        try:
            free = await self._gate.let_through(message, slot.priority)
            claimed = await self._claims.claim(message) if free else None
        except BaseException:
            self._slots.release(slot)
            raise
        if claimed is None:
            self._slots.release(slot)
            return False
        name = f"{claimed.run.saga}/{claimed.run.key} {claimed.step.name}"
        task = asyncio.create_task(self._work(claimed), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: self._slots.release(slot))
        return True

    async def _slot(self, priority: Priority) -> Ticket:
        """Wait for a free slot and a lease."""
        while True:
            if self._tools.stopping():
                raise Stopping
            slot = self._slots.take(priority) or await self._turn(priority)
            if self._allowed and self._lease.held():
                return slot
            self._slots.release(slot)
            await asyncio.sleep(LOOK)

    async def _turn(self, priority: Priority) -> Ticket:
        """Wait for a free slot, in one place of the line for as long as it takes."""
        waiting = asyncio.ensure_future(self._slots.acquire(priority))
        try:
            while not waiting.done():
                if self._tools.stopping():
                    raise Stopping
                await asyncio.wait({waiting}, timeout=LOOK)
                if not waiting.done() and self._tasks:
                    # All slots are taken by steps, each with a timeout of its own.
                    getting_on()
        except BaseException:
            if waiting.done() and not waiting.cancelled():
                self._slots.release(waiting.result())
            waiting.cancel()
            raise
        return waiting.result()

    async def _work(self, claimed: Claimed) -> None:
        """Run the claimed step, and those after it that this process claims inline."""
        task = asyncio.current_task()
        self._begun.add(task)
        try:
            following: Claimed | None = claimed
            while following is not None:
                with self._claims.attempts.attempt(claimed.run.id) as attempt:
                    following = await self._one(following, attempt)
        except Exception:
            logger.exception("a step's outcome could not be stored; it is settled at its hard timeout")
        finally:
            self._begun.discard(task)

    async def _one(self, claimed: Claimed, attempt: Attempt) -> Claimed | None:
        run, step = claimed.run, claimed.step
        definition = self._engine.changes.definitions.of(run)
        assert definition is not None, "only runs of known definitions are claimed"
        call = Call(definition, run, step, self._tools)
        inline = InlineClaim(
            worker=step.worker or self._lease.id,
            queue=self._queue,
            wanted=lambda: self._goes_on(run.priority) and self._lease.held(step.worker),
            attempt=attempt,
            limited=self._gate.limited,
        )
        with span(_span_name(step), traceparent=run.traceparent, attributes=lambda: _attributes(call)):
            begins = not self._closing and not self._claims.attempts.late(claimed.asked_at)
            if begins and step.kind is StepKind.TX and not call.is_settling:
                return await finish_transactional(self._engine, self._database, call, inline, self._room)
            if begins and step.kind is StepKind.EACH:
                return await finish_listing(self._engine, call, inline, self._room)
            fact = await call.outside() if begins else call.unbegun()
            await self._gate.heard(run.id, definition, step, fact)
            return await finish(self._engine, call, fact, inline, claimed.known)

    def _goes_on(self, priority: Priority) -> bool:
        """Whether a slot may be kept for a run's next step: nothing of a higher priority waits for one."""
        return not self._tools.stopping() and not self._slots.kept_from(priority)

    def cancel(self) -> None:
        """Cancel what runs; each task says what became of it. One that has not begun finds out by itself."""
        for task in self._begun:
            if task is not None:
                task.cancel()

    async def drain(self, remaining: Callable[[], float]) -> None:
        """Let what runs finish while time remains, then cancel it and wait until it has been handed back.

        Args:
            remaining: Seconds of grace left.
        """
        while (self._tasks or self._claiming) and remaining() > 0:
            await self._settled(min(LOOK, remaining()))
        self._closing = True
        self.cancel()
        ended = asyncio.get_running_loop().time() + HAND_BACK
        while (self._tasks or self._claiming) and asyncio.get_running_loop().time() < ended:
            await self._settled(LOOK)

    async def _settled(self, seconds: float) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        else:
            await asyncio.sleep(seconds)

    @property
    def busy(self) -> int:
        """Steps being run now."""
        return len(self._tasks)


def handed_over(engine: Engine, workers: Mapping[str, Worker], lanes: Sequence[str]) -> HandedOver:
    """Return the part that takes work which reached a process without its definition.

    Args:
        workers: By queue.
        lanes: Which of worker and compensator this process is.
    """

    async def take(message: Message, queue: str, priority: Priority) -> None:
        if isinstance(message, WorkMessage):
            await workers[queue].take(message, priority)

    kinds = {"worker": "work", "compensator": "compensation"}
    return HandedOver(engine, "handed over work", {kinds[lane]: take for lane in lanes}, list(workers))


def _attributes(call: Call) -> dict[str, str | int]:
    run, step = call.run, call.step
    return {
        "milepost.run": str(run.id),
        "milepost.saga": run.saga,
        "milepost.key": run.key,
        "milepost.attempt": step.attempt,
        "milepost.operation": operation_key(run.id, call.node.name, step.iteration, undo=call.is_undo),
    }


def _span_name(step: Step) -> str:
    if step.state is StepState.RECONCILING:
        return f"probe {step.name}"
    return f"{'undo' if step.kind is StepKind.UNDO else 'step'} {step.name}"


def _message(record: Record) -> WorkMessage | None:
    try:
        envelope, data = read_event(record)
        if envelope.type == WorkMessage.message_type:
            return WorkMessage.model_validate_json(data)
    except (NotAnEvent, ValidationError) as error:
        # Only this service writes here; what it cannot read is a signal lost, and wake_at finds the row again.
        logger.warning(
            "%s/%s@%s is no message of ours: %s", record.topic, record.partition, record.offset, error
        )
    return None
