"""One run in full, as its page and the API have it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from ...schemas.states import Risk, RunState
from .choices import Choice
from .lanes import Lane
from .work import Question


class StepView(BaseModel):
    """A step, wait or undo with what it holds.

    Attributes:
        message: Of its failure, or of the try before, without the code.
        fence, generation, hash: As this page saw it; an act is refused where they have moved.
        result, progress: JSON, masked for who may not read payloads.
        choices: What may be decided.
    """

    label: str
    name: str
    iteration: str
    kind: str
    state: str
    undo_of: str | None
    queue: str
    tries: int
    probes: int
    doubt: bool
    code: str | None
    message: str
    worker: str | None
    wake_at: datetime | None
    since: datetime
    started_at: datetime | None
    finished_at: datetime | None
    items: Mapping[str, int] | None
    fence: int
    generation: int | None
    hash: str | None
    result: Any
    progress: Any
    spent: Any
    granted: Any
    limited_until: datetime | None
    question: Question | None
    choices: list[Choice]

    @property
    def took(self) -> timedelta | None:
        """From its first beginning to its end; None before."""
        if self.started_at is None or self.finished_at is None:
            return None
        return self.finished_at - self.started_at


class Event(BaseModel):
    """A row of the timeline.

    Attributes:
        later: Time since the row before it.
        data: What it says beside, in order; masked for who may not read payloads.
    """

    n: int
    at: datetime
    later: timedelta | None
    event: str
    step: str
    tries: int | None
    by: str | None
    reason: str | None
    message: str
    data: dict[str, Any]
    tone: str


class RequestView(BaseModel):
    """What a person asked for, and what became of it."""

    id: UUID
    what: str
    step: str | None
    by: str
    reason: str
    at: datetime
    state: str
    answer: str | None
    answered_at: datetime | None


class RunView(BaseModel):
    """A run in full."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    id: UUID
    tenant: str
    service: str
    saga: str
    key: str
    definition: int
    state: RunState
    code: str | None
    cause: str | None
    correlation: str
    trace: str | None
    priority: str
    severity: Risk
    version: int
    situation: str
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None
    deadline_at: datetime | None
    active_for: timedelta
    now: datetime
    lock: dict[str, object] | None
    parked_at: datetime | None
    payloads: bool
    input: Any
    steps: list[StepView]
    ahead: list[str]
    timeline: list[Event]
    lanes: list[Lane]
    drawing: str | None
    manifest: dict[str, Any]
    requests: list[RequestView]
    evidence: list[dict[str, Any]]
    audit: list[dict[str, Any]]
    messages: list[dict[str, Any]]
    published: list[dict[str, Any]]
    artifacts: list[dict[str, Any]]
    children: list[dict[str, Any]]
    parents: list[dict[str, Any]]
    choices: list[Choice]

    @property
    def title(self) -> str:
        """What a person calls it."""
        return f"{self.saga}/{self.key}"

    @property
    def waiting(self) -> list[StepView]:
        """Steps about which something may be decided."""
        return [step for step in self.steps if step.choices]
