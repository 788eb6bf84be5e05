"""The worker: claims announced steps while it has a free slot, calls them, stores what came of it, goes on inline."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from uuid import UUID

from pydantic import ValidationError

from ..sagas.definition import operation_key
from ..sagas.model import Claim, Fact, Run, Step
from ..schemas.envelope import NotAnEvent, Record, read_event
from ..schemas.messages import WorkMessage
from ..schemas.states import HELD_STEP_STATES, StepKind, StepState
from ..streams.database import Database
from ..streams.tracing import span
from .calls import Call, Tools
from .changes import InlineClaim
from .engine import Engine
from .finishing import Claimed, claimed_in, finish, finish_transactional, uncancelled
from .lease import Lease, LeaseLost

logger = logging.getLogger("milepost")

#: How long a stopping worker may take to hand back what it was cancelled in, in seconds.
HAND_BACK = 3.0


#: How often a claim that waits for a slot or the lease looks whether a stop was asked for, in seconds.
LOOK = 0.1


class Stopping(Exception):
    """This process stops: the message is left for another one."""


class Worker:
    """Handles work and compensation topics of one queue.

    Args:
        engine: Decides and stores.
        database: For transactional steps.
        lease: Claims are made under its id.
        tools: What the user's functions need.
        queue: Which queue's topics it serves.
        slots: Steps at once.
    """

    def __init__(
        self,
        engine: Engine,
        database: Database,
        lease: Lease,
        tools: Tools,
        *,
        queue: str,
        slots: int,
    ) -> None:
        self._engine = engine
        self._database = database
        self._lease = lease
        self._tools = tools
        self._queue = queue
        self._free = asyncio.Semaphore(slots)
        self._tasks: set[asyncio.Task[None]] = set()
        self._claiming = 0
        self._allowed = False
        self._held: set[tuple[UUID, str, int]] = set()
        lease.on_lost(self.cancel)

    def allow(self) -> None:
        """Claims may begin: the clients are open."""
        self._allowed = True

    async def handle(self, records: Sequence[Record]) -> None:
        """Claim what the messages announce; returns when each has been claimed or was not to be had.

        Raises:
            Stopping: A stop was asked for before all were claimed.
        """
        messages = [message for record in records if (message := _message(record)) is not None]
        results = await asyncio.gather(
            *(self.take(m) for m in dict.fromkeys(messages)), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def take(self, message: WorkMessage) -> bool:
        """Claim one step as soon as a slot is free, and run it in the background.

        Returns:
            Whether the claim was made; False when somebody else has it or it is no longer to be done.

        Raises:
            Stopping: A stop was asked for first.
        """
        await self._slot()
        self._claiming += 1
        try:
            claimed = await self._claim(message)
            if claimed is not None:
                self._begin(claimed)
        except BaseException:
            self._free.release()
            raise
        finally:
            self._claiming -= 1
        if claimed is None:
            self._free.release()
        return claimed is not None

    async def _slot(self) -> None:
        """Wait for a free slot and a lease."""
        while True:
            if self._tools.stopping():
                raise Stopping
            try:
                async with asyncio.timeout(LOOK):
                    await self._free.acquire()
            except TimeoutError:
                continue
            if self._allowed and self._lease.held():
                return
            self._free.release()
            await asyncio.sleep(LOOK)

    async def _claim(self, message: WorkMessage) -> Claimed | None:
        worker = self._lease.id
        recovered: list[Claimed] = []

        def claim(run: Run) -> Fact | None:
            step = run.step(message.step, message.iteration)
            if step is not None and step.worker == worker and step.state in HELD_STEP_STATES:
                if (run.id, step.name, step.fence) not in self._held:
                    recovered.append(Claimed(run, step))
                return None
            return Claim(message.step, worker, iteration=message.iteration)

        return claimed_in(await self._engine.change(message.run, claim), recovered)

    def _begin(self, claimed: Claimed) -> None:
        name = f"{claimed.run.saga}/{claimed.run.key} {claimed.step.name}"
        self._held.add(_mark(claimed))
        task = asyncio.create_task(self._work(claimed), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _work(self, claimed: Claimed) -> None:
        """Run the claimed step, and those after it that this process claims inline."""
        try:
            following: Claimed | None = claimed
            while following is not None:
                current = following
                self._held.add(_mark(current))
                try:
                    following = await self._one(current)
                finally:
                    self._held.discard(_mark(current))
        except LeaseLost:
            logger.warning(
                "MP303 %s/%s: lease lost before the call; others settle it", claimed.run.saga, claimed.run.key
            )
        except Exception:
            logger.exception(
                "a step's outcome could not be stored; it is settled when this process's lease ends"
            )
        finally:
            self._free.release()

    async def _one(self, claimed: Claimed) -> Claimed | None:
        run, step = claimed.run, claimed.step
        definition = self._engine.changes.definitions.get(run.saga, run.definition)
        assert definition is not None, "only runs of known definitions are claimed"
        call = Call(definition, run, step, self._tools)
        inline = InlineClaim(self._lease.id, self._queue, self._goes_on)
        attributes: dict[str, str | int] = {
            "milepost.run": str(run.id),
            "milepost.saga": run.saga,
            "milepost.key": run.key,
            "milepost.attempt": step.attempt,
            "milepost.operation": operation_key(run.id, call.node.name, undo=call.is_undo),
        }
        with span(_span_name(step), traceparent=run.traceparent, attributes=attributes):
            if step.kind is StepKind.TX and not call.is_settling:
                return await finish_transactional(self._engine, self._database, call, inline)
            fact = await call.outside()
            return await uncancelled(finish(self._engine, call, fact, inline))

    def _goes_on(self) -> bool:
        return not self._tools.stopping() and self._lease.held()

    def cancel(self) -> None:
        """Cancel what runs; each task says what became of it."""
        for task in self._tasks:
            task.cancel()

    async def drain(self, remaining: Callable[[], float]) -> None:
        """Let what runs finish while time remains, then cancel it and wait until it has been handed back.

        Args:
            remaining: Seconds of grace left.
        """
        while (self._tasks or self._claiming) and remaining() > 0:
            await self._settled(min(LOOK, remaining()))
        self.cancel()
        ended = asyncio.get_running_loop().time() + HAND_BACK
        while self._tasks and asyncio.get_running_loop().time() < ended:
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


def _mark(claimed: Claimed) -> tuple[UUID, str, int]:
    return claimed.run.id, claimed.step.name, claimed.step.fence


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
