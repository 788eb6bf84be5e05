"""The rows of commands that runs send, and what makes one unfit to be sent."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ..outbox.model import OutboxRow, event_row
from ..sagas.model import Run, Send
from ..schemas.commands import Command, Direction, request_headers
from ..schemas.errors import MilepostError
from ..schemas.ids import SystemClock, SystemIds
from ..schemas.messages import replies_topic

if TYPE_CHECKING:
    from .changes import Changes

_CLOCK, _IDS = SystemClock(), SystemIds()


def operation(step: str, iteration: str) -> str:
    """Return the name that an operation of a run has at its participant: the step, and the round it is of."""
    return f"{step}#{iteration}" if iteration else step


def operation_of(name: str) -> tuple[str, str]:
    """Return step and round of an operation's name."""
    step, _, iteration = name.partition("#")
    return step, iteration


def row_of(changes: Changes, run: Run, send: Send) -> OutboxRow:
    """Return the outbox row of a command of the way forward."""
    name = operation(send.step, send.iteration)
    return command_row(changes, run, send.command, step=name, direction="do", attempt=send.attempt)


def command_row(
    changes: Changes, run: Run, command: Command[Any], *, step: str, direction: Direction, attempt: int
) -> OutboxRow:
    """Return the outbox row of a command whose reply comes to the service's own topic.

    Args:
        step: Name of the operation; an undo's is that of what it undoes.
        attempt: From 1; comes back with the reply.

    Raises:
        UsageError: MP310 to MP317 when it cannot be published.
    """
    row = event_row(
        command,
        ids=changes.ids,
        clock=changes.clock,
        tenant=run.tenant,
        correlation_id=run.correlation_id,
        traceparent=run.traceparent,
    )
    asked = request_headers(str(run.id), step, direction, attempt, replies_topic(changes.service))
    return replace(row, headers=row.headers | asked)


def unsendable(command: Command[Any]) -> str:
    """Say what keeps a command from being published, or ''."""
    try:
        event_row(command, ids=_IDS, clock=_CLOCK, correlation_id=str(UUID(int=0)))
    except MilepostError as error:
        return str(error)
    return ""
