"""What persons have decided: the result of an approval."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel


class Decision(BaseModel):
    """Result of an approval.

    Attributes:
        approved: False only where `on_reject=Then.CONTINUE` lets a run go on after a rejection.
        by: Who approved, in order; or who rejected.
        reason: Of the last of them.
        at: When the last of them said so.
    """

    approved: bool
    by: tuple[str, ...]
    reason: str
    at: datetime
