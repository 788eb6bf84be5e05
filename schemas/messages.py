"""Internal messages of a service, as they travel on its own topics.

Each is a signal to look at a row: losing or repeating one is harmless, because the row decides.
"""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from .states import Priority


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True)
    message_type: ClassVar[str] = ""


class WorkMessage(_Message):
    """A step, a probe or an undo is ready to be claimed.

    Attributes:
        step: Name of the step row (for an undo: the undo's own name).
        definition: Version of the saga, so that a process without it leaves the step alone.
    """

    message_type: ClassVar[str] = "milepost.work"
    run: UUID
    saga: str
    definition: int
    step: str
    iteration: str = ""


class ResumeMessage(_Message):
    """A wait of the run has been matched with a signal."""

    message_type: ClassVar[str] = "milepost.resume"
    run: UUID
    step: str
    iteration: str = ""
    generation: int


class TimerMessage(_Message):
    """Something of the run is due; `step` is None for the run itself."""

    message_type: ClassVar[str] = "milepost.timer"
    run: UUID
    step: str | None
    iteration: str = ""
    generation: int


class ChildMessage(_Message):
    """The child of a row is to be looked after: started, stopped, or asked how it has ended."""

    message_type: ClassVar[str] = "milepost.child"
    run: UUID
    step: str
    iteration: str = ""


class ChildEndedMessage(_Message):
    """A run is final that others wait for."""

    message_type: ClassVar[str] = "milepost.child-ended"
    run: UUID


def work_topic(service: str, queue: str, priority: Priority = Priority.NORMAL) -> str:
    """Topic of a queue's steps and probes, of runs of one priority."""
    return f"{service}.work.{queue}{_suffix(priority)}"


def compensation_topic(service: str, queue: str, priority: Priority = Priority.NORMAL) -> str:
    """Topic of a queue's undo work, of runs of one priority."""
    return f"{service}.compensation.{queue}{_suffix(priority)}"


def _suffix(priority: Priority) -> str:
    """A queue's name holds no dot, so no other queue has such a topic."""
    return "" if priority is Priority.NORMAL else f".{priority.lower()}"


def priority_of(topic: str) -> Priority:
    """Return the priority of what a work or compensation topic carries."""
    parts = topic.split(".")
    return Priority(parts[3].upper()) if len(parts) == 4 else Priority.NORMAL


def runs_topic(service: str) -> str:
    """Topic of resumes."""
    return f"{service}.runs"


def timers_topic(service: str) -> str:
    """Topic of due timers."""
    return f"{service}.timers"


def replies_topic(service: str) -> str:
    """Topic of the replies to the commands that a service's runs send."""
    return f"{service}.replies"


def signals_group(service: str) -> str:
    """Consumer group and inbox identity of the signal intake."""
    return f"{service}.signals"
