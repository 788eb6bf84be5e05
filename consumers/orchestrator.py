"""The orchestrator: acts on resumes and due timers. It only decides and stores, it never calls the outside world."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from pydantic import ValidationError

from ..sagas.facts import Fact, Signalled, Wake
from ..sagas.model import Run
from ..schemas.envelope import NotAnEvent, Record, read_event
from ..schemas.messages import ChildEndedMessage, ChildMessage, ResumeMessage, TimerMessage
from ..schemas.states import Priority
from ..streams.tracing import past_span
from .changes import Change
from .children import ended, look_after
from .engine import Engine, raise_passing
from .handing import HandedOver, Message, hand_over
from .replies import Reply, read_reply

_KINDS: tuple[type[TimerMessage | ResumeMessage | ChildMessage | ChildEndedMessage], ...] = (
    TimerMessage,
    ResumeMessage,
    ChildMessage,
    ChildEndedMessage,
)

logger = logging.getLogger("milepost")


class Orchestrator:
    """Handles the topics `{service}.runs`, `{service}.timers` and `{service}.replies`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def handle(self, records: Sequence[Record]) -> None:
        """Act on all messages at once; what each says is checked against its row, so repeats and losses are harmless.

        Raises:
            Exception: What the database raised while it was away; then all of them are to be handled again.
        """
        read = [message for record in records if (message := _message(record)) is not None]
        over = [message.run for message in read if isinstance(message, ChildEndedMessage)]
        messages = [message for message in read if not isinstance(message, ChildEndedMessage)]
        acts = [self.act(message) for message in messages]
        what = [f"{message.message_type} of run {message.run}" for message in messages]
        if over:
            acts.append(ended(self._engine, over))
            what.append(f"the ends of {len(over)} children")
        results = await asyncio.gather(*acts, return_exceptions=True)
        raise_passing(zip(what, results, strict=True))

    async def act(
        self,
        message: Message | ChildMessage,
        queue: str = "",
        priority: Priority = Priority.NORMAL,
    ) -> None:
        """Act on a message, from wherever it comes; queue and priority do not matter here."""
        if isinstance(message, Reply):
            if await self._engine.change(message.run, message.of) is None:
                await hand_over(self._engine, message)
        elif isinstance(message, ChildMessage):
            await look_after(self._engine, message)
        elif isinstance(message, TimerMessage):
            await self.wake(message)
        elif isinstance(message, ResumeMessage):
            await self.resume(message)

    def handed_over(self) -> HandedOver:
        """Return the part that acts on messages which reached a process without the run's definition."""
        return HandedOver(
            self._engine, "handed over", dict.fromkeys(("timer", "resume", "reply"), self.act), ()
        )

    async def wake(self, message: TimerMessage) -> Change | None:
        """Act on a due timer."""
        change = await self._engine.change(
            message.run, Wake(message.step, message.generation, iteration=message.iteration)
        )
        if change is None:
            await hand_over(self._engine, message)
        else:
            # At once and not only by message, which may reach a process that lacks the definition again and again.
            for seek in change.decision.seeks:
                await look_after(
                    self._engine, ChildMessage(run=message.run, step=seek.step, iteration=seek.iteration)
                )
        trace_wait(change)
        return change

    async def resume(self, message: ResumeMessage) -> Change | None:
        """Continue a run whose wait has been matched; the signal itself is read with the run."""

        def signalled(run: Run) -> Fact | None:
            step = run.step(message.step, message.iteration)
            if step is None or step.signal is None:
                return None
            return Signalled(message.step, message.generation, step.signal, iteration=message.iteration)

        change = await self._engine.change(message.run, signalled)
        if change is None:
            await hand_over(self._engine, message)
        trace_wait(change)
        return change


def _message(
    record: Record,
) -> TimerMessage | ResumeMessage | Reply | ChildMessage | ChildEndedMessage | None:
    try:
        envelope, data = read_event(record)
        if envelope.exchange is not None:
            return read_reply(envelope, data)
        for kind in _KINDS:
            if envelope.type == kind.message_type:
                return kind.model_validate_json(data)
    except (NotAnEvent, ValidationError) as error:
        # What cannot be read is a signal lost, and wake_at finds the row again: a command is sent once more.
        logger.warning(
            "%s/%s@%s is no message of ours: %s", record.topic, record.partition, record.offset, error
        )
    return None


def trace_wait(change: Change | None) -> None:
    """Record the span of a wait that has just ended: it held no worker, so it is written afterwards."""
    if change is None or change.decision.answer != "changed":
        return
    before = {(step.name, step.iteration): step for step in change.before.run.steps}
    for step in change.decision.changed:
        was = before.get((step.name, step.iteration))
        if was is None or was.kind != "WAIT" or was.state == step.state:
            continue
        link = change.before.links.get((step.name, step.iteration))
        past_span(
            f"wait {step.name}",
            start=was.since,
            end=change.before.now,
            traceparent=change.before.run.traceparent,
            links=(link,) if link else (),
            attributes={"milepost.run": str(change.before.run.id), "milepost.state": step.state.value},
        )
