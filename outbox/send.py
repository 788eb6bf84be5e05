"""Sending commands: an event with a reply-to topic and the name of the operation that it belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

from ..schemas.commands import Command, reply_of, request_headers
from ..schemas.errors import UsageError
from ..schemas.events import is_topic
from ..schemas.exchange import LONGEST, REPLY_TO, RUN, STEP
from ..schemas.ids import SystemClock, SystemIds
from ..schemas.transaction import AnyTx, Transaction
from ..streams.drivers import run_in
from ..streams.tracing import current_traceparent, span
from .model import event_row
from .refusals import check_texts
from .statements import insert

_CLOCK = SystemClock()
_IDS = SystemIds()


async def send(
    tx: AnyTx,
    command: Command[Any],
    *,
    run: str | UUID = "",
    step: str = "",
    undo: bool = False,
    attempt: int = 1,
    reply_to: str | None = None,
    tenant: str = "",
) -> UUID:
    """Write a command to the outbox in the caller's transaction, as `publish` does, and say where its reply goes.

    The reply is an ordinary event. Its `tx.envelope.causation_id` is the command's id, its `correlation_id` that of
    the event being handled or else also the command's id, and `tx.envelope.exchange` names run, step, direction and
    attempt again.

    Args:
        tx: The open transaction, as for `publish`.
        run: What the operation is part of; unique among all requesters of the participant, so use a run's id or
            another UUID. Together with `step` it is the operation: ask again with both, and the participant answers
            from its memory instead of acting twice. Without it every command is an operation of its own.
        step: What is to be done; an undo names the step that it undoes.
        undo: Whether this command undoes the operation.
        attempt: Number of this attempt, from 1; comes back with the reply.
        reply_to: Topic of the reply; None takes that of the reply's class.
        tenant: Tenant of the command; '' takes that of the event being handled or of the step's run, if any.

    Returns:
        The command's CloudEvents id.

    Raises:
        UsageError: MP471 for run, step, attempt or reply_to that cannot travel; else as `publish`.
        StateError: MP410 when the outbox has no partition for today.
    """
    run_statement = await run_in(tx, "send()")
    topic = reply_of(type(command)).milepost_spec.topic if reply_to is None else reply_to
    name = str(run)
    headers = request_headers(name, step, "undo" if undo else "do", attempt, topic)
    _check(command, headers, undo, attempt)
    cause = tx._cause if isinstance(tx, Transaction) else None
    with span(f"send {command.milepost_spec.type}", kind="producer"):
        row = event_row(
            command,
            ids=_IDS,
            clock=_CLOCK,
            tenant=tenant or (cause.tenant if cause else ""),
            causation_id=(cause.causation_id or None) if cause else None,
            traceparent=current_traceparent(),
        )
        correlation = cause.correlation_id if cause else ""
        ours = {"ce_correlationid": correlation or str(row.id)} | headers
        rows = [replace(row, headers=row.headers | ours)]
        await insert(rows, run_statement, call="send()")
    return row.id


def _check(command: Command[Any], headers: Mapping[str, str], undo: bool, attempt: int) -> None:
    check_texts(command.milepost_spec.type, headers.items())
    run, step, topic = headers.get(RUN, ""), headers.get(STEP, ""), headers.get(REPLY_TO, "")
    if undo and not run:
        wrong = "undo=True without run= says nothing about what to undo. Pass the run and step of the command to undo"
    elif bool(run) != bool(step):
        wrong = "run= and step= name the operation together. Pass both, or neither"
    elif len(run) > LONGEST or len(step) > LONGEST:
        wrong = f"run= and step= take {LONGEST} characters each. Pass an id instead"
    elif not 1 <= attempt < 10**8:
        wrong = f"attempt={attempt} is not a number from 1 to 99999999. Count the attempts from 1"
    elif not is_topic(topic):
        wrong = f"reply_to={topic!r} is no Kafka topic name. Use letters, digits, '.', '_' and '-'"
    else:
        return
    raise UsageError("MP471", f"send(): {command.milepost_spec.type}: {wrong}.")
