"""The orchestrator: acts on resumes and due timers. It only decides and stores, it never calls the outside world."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from pydantic import ValidationError

from ..sagas.facts import Fact, Signalled, Wake
from ..sagas.model import Run
from ..schemas.envelope import NotAnEvent, Record, read_event
from ..schemas.messages import ResumeMessage, TimerMessage
from ..streams.tracing import past_span
from .changes import Change
from .engine import Engine, raise_passing

logger = logging.getLogger("milepost")


class Orchestrator:
    """Handles the topics `{service}.runs` and `{service}.timers`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def handle(self, records: Sequence[Record]) -> None:
        """Act on all messages at once; what each says is checked against its row, so repeats and losses are harmless.

        Raises:
            Exception: What the database raised while it was away; then all of them are to be handled again.
        """
        messages = [message for record in records if (message := _message(record)) is not None]
        results = await asyncio.gather(*map(self._act, messages), return_exceptions=True)
        raise_passing(
            (f"{message.message_type} of run {message.run}", result)
            for message, result in zip(messages, results, strict=True)
        )

    async def _act(self, message: TimerMessage | ResumeMessage) -> Change | None:
        return await (self.wake(message) if isinstance(message, TimerMessage) else self.resume(message))

    async def wake(self, message: TimerMessage) -> Change | None:
        """Act on a due timer."""
        change = await self._engine.change(
            message.run, Wake(message.step, message.generation, iteration=message.iteration)
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
        trace_wait(change)
        return change


def _message(record: Record) -> TimerMessage | ResumeMessage | None:
    try:
        envelope, data = read_event(record)
        if envelope.type == TimerMessage.message_type:
            return TimerMessage.model_validate_json(data)
        if envelope.type == ResumeMessage.message_type:
            return ResumeMessage.model_validate_json(data)
    except (NotAnEvent, ValidationError) as error:
        # Only this service writes here; what it cannot read is a signal lost, and wake_at finds the row again.
        logger.warning(
            "%s/%s@%s is no message of ours: %s", record.topic, record.partition, record.offset, error
        )
    return None


def trace_wait(change: Change | None) -> None:
    """Record the span of a wait that has just ended: it held no worker, so it is written afterwards."""
    if change is None or change.decision.answer != "changed":
        return
    before = {step.name: step for step in change.before.run.steps}
    for step in change.decision.changed:
        was = before.get(step.name)
        if was is None or was.kind != "WAIT" or was.state == step.state:
            continue
        link = change.before.links.get(step.name)
        past_span(
            f"wait {step.name}",
            start=was.since,
            end=change.before.now,
            traceparent=change.before.run.traceparent,
            links=(link,) if link else (),
            attributes={"milepost.run": str(change.before.run.id), "milepost.state": step.state.value},
        )
