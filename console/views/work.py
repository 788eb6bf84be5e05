"""What the worklist of the console is made of. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final
from uuid import UUID

from pydantic import BaseModel

from ...schemas.states import Risk

#: What the page lists, in words.
WORDS: Final = {
    "approval": "waits for approval",
    "confirm": "waits for a second person",
    "proposal": "is proposed, and waits for a yes or no",
    "bulk": "acts on many, and waits for a second person",
    "step": "step in front of a person",
    "tx": "step in front of a person",
    "undo": "undo in front of a person",
    "wait": "wait in front of a person",
    "run": "run in front of a person",
    "version": "no process has its version",
    "unknown": "outcome unknown",
    "letters": "dead letters",
    "trouble": "stands still",
}
#: What a reader chooses by, and which kinds of the query that is.
GROUPS: Final[dict[str, tuple[str, ...]]] = {
    "approvals": ("approval", "confirm", "proposal", "bulk"),
    "steps": ("step", "tx", "wait", "timer", "command", "child", "each", "choice", "loop"),
    "undos": ("undo",),
    "runs": ("run", "version"),
    "unknown": ("unknown",),
    "letters": ("letters",),
    "troubles": ("trouble",),
}


class Question(BaseModel):
    """What persons are asked.

    Attributes:
        left: How many more have to approve.
        given: Who has.
        expires: When it lapses; None for never.
    """

    risk: Risk
    needed: int
    left: int
    roles: list[str]
    given: list[str]
    expires: datetime | None
    params: Any = None


class WorkRow(BaseModel):
    """Something that waits.

    Attributes:
        id: Stable while it waits.
        kind: A key of `WORDS`.
        title: What a person calls it.
        href: The page on which it is decided.
        urgency: What is asked about, or the severity of its workflow, whichever is higher.
        amount: How many it is: 1 but for letters and what stands still.
        behind: Letters that wait behind these and go on by themselves.
        runbook: Of what stands still, the page that goes through it; None where there is none.
        possible: Acts, of which the state machine has the last word.
        asked: What somebody has asked for already.
    """

    id: str
    kind: str
    title: str
    href: str
    run_id: UUID | None = None
    tenant: str = ""
    service: str = ""
    saga: str | None = None
    step: str | None = None
    state: str
    run_state: str | None = None
    code: str | None = None
    message: str = ""
    tries: int = 0
    doubt: bool = False
    urgency: Risk = Risk.MEDIUM
    since: datetime
    amount: int = 1
    behind: int = 0
    runbook: str | None = None
    question: Question | None = None
    possible: list[str] = []
    asked: str | None = None

    @property
    def group(self) -> str:
        """The key of `GROUPS` that it is in."""
        return next((name for name, kinds in GROUPS.items() if self.kind in kinds), "steps")

    @property
    def words(self) -> str:
        """What it is, in words."""
        return WORDS.get(self.kind, "step in front of a person")


class Worklist(BaseModel):
    """What waits, the most urgent first.

    Attributes:
        more: There is more than is listed.
        groups: By key of `GROUPS`, how many of the listed.
    """

    now: datetime
    rows: list[WorkRow]
    more: bool
    groups: dict[str, int]

    @property
    def total(self) -> int:
        """How many are listed, of all groups."""
        return sum(self.groups.values())

    @property
    def figure(self) -> str:
        """That, as every page says it: 21, or 200+ where there are more."""
        return f"{self.total:,}{'+' if self.more else ''}"
