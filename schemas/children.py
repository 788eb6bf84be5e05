"""What a saga knows of a run that it has started and waits for."""

from __future__ import annotations

from uuid import UUID

from pydantic import BaseModel, ConfigDict


class ChildRun(BaseModel):
    """A child that has ended well; the result of `saga.child`.

    Attributes:
        id: The child's run.
        saga: Name of its saga.
        key: Its business key.
        state: How it ended, a value of `RunState`.
    """

    model_config = ConfigDict(frozen=True)

    id: UUID
    saga: str
    key: str
    state: str
