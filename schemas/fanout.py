"""What a saga knows of the runs that it has started for the items of a list."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, NonNegativeInt, model_validator

from .states import ItemState


class FanOut(BaseModel):
    """How the items of a fan-out have ended; the result of `saga.each`.

    Attributes:
        total: All items.
        succeeded: Those whose run has done what it was started for.
        failed: Those whose run has ended otherwise, or could not be started. What is missing of `total` was cancelled.
    """

    model_config = ConfigDict(frozen=True)

    total: NonNegativeInt
    succeeded: NonNegativeInt
    failed: NonNegativeInt

    @model_validator(mode="after")
    def _no_more_than_all(self) -> FanOut:
        if self.succeeded + self.failed > self.total:
            raise ValueError("succeeded and failed are more than total")
        return self

    @property
    def cancelled(self) -> int:
        """Items that were given up before they had ended, or were never given out."""
        return self.total - self.succeeded - self.failed


class FanOutItem(BaseModel):
    """One item of a fan-out.

    Attributes:
        number: Its place in the list, from 0.
        key: Key that its saga gives it.
        input: Input of its run, as JSON.
        attempt: How many runs it has had, with the present one; from the second on the run's key ends in "~2", "~3".
        run: Its run; None before it is started, and where it could not be.
        joined: Somebody else had started that run.
        code: Why it failed.
    """

    model_config = ConfigDict(frozen=True)

    number: int
    key: str
    input: Any
    state: ItemState
    attempt: int
    run: UUID | None = None
    joined: bool = False
    code: str | None = None
    message: str | None = None
