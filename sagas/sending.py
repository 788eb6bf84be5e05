"""Making commands and sending them with the decision; commanding.py answers what comes back."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ..schemas.commands import Command, reply_of
from ..schemas.states import StepKind, StepState
from . import doubting, retry
from .context import View
from .definition import Node
from .draft import Draft
from .model import Send, Step
from .words import SEND_FAILED, clean


def begin(draft: Draft, node: Node, iteration: str) -> None:
    """Make the row of a command that has become runnable, and send it."""
    made, problem = make(draft, node)
    values = {"iteration": iteration, "queue": node.queue}
    if made is None:
        told = {"code": SEND_FAILED, "message": problem}
        row = draft.create(
            node.name, StepKind.COMMAND, StepState.MANUAL_REQUIRED, wake_at=draft.reminder(), **values, **told
        )
        draft.note("step.manual_required", row, **told)
        return
    at, now = _timeout(draft, node), draft.now
    row = draft.create(
        node.name,
        StepKind.COMMAND,
        StepState.WAITING,
        wake_at=at,
        attempt=1,
        first_at=now,
        started_at=now,
        **values,
    )
    _send(draft, row, made)


def make(draft: Draft, node: Node) -> tuple[Command[Any] | None, str]:
    """Return the command that a node sends and '', or None and what is wrong with it."""
    assert node.command is not None
    try:
        made = node.command.send(View(draft.definition, draft.run, reader=node.name))
    except Exception as error:  # the user's code may raise anything, and every fact has an answer
        return None, clean(f"it raised {type(error).__name__}: {error}")
    if not isinstance(made, Command):
        return None, f"it returned {type(made).__name__}, no command"
    if reply_of(type(made)) is not node.command.reply:
        return (
            None,
            f"it returned {type(made).__name__}, which is not replied with {node.command.reply.__name__}",
        )
    problem = draft.limits.unsendable(made)
    return (None, clean(problem)) if problem else (made, "")


def _timeout(draft: Draft, node: Node) -> datetime:
    assert node.command is not None
    return retry.later(draft.now, node.command.timeout)


def _send(draft: Draft, row: Step, made: Command[Any]) -> None:
    draft.sends.append(Send(row.name, row.attempt, made, row.iteration))
    draft.note("command.sent", row, type=made.milepost_spec.type)


def send_again(draft: Draft, node: Node, step: Step) -> None:
    """Send a command once more, as the next attempt; what cannot be sent goes to a person."""
    made, problem = make(draft, node)
    if made is None:
        doubting.person(draft, step, SEND_FAILED, problem)
        return
    now = draft.now
    row = draft.move(
        step,
        StepState.WAITING,
        wake_at=_timeout(draft, node),
        attempt=step.attempt + 1,
        first_at=step.first_at or now,
        started_at=now,
    )
    _send(draft, row, made)
