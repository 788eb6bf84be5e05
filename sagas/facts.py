"""Facts: what may have happened to a run. `decide` answers each of them in every state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal, TypeAlias
from uuid import UUID

from .model import Json

if TYPE_CHECKING:
    from .resuming import Checked

Verdict: TypeAlias = Literal["retry", "fatal", "unknown", "not_sent", "quality", "policy"]
#: After these nothing is tried again. Only "fatal" tells of earlier tries too: the other side says no.
FOR_GOOD: frozenset[Verdict] = frozenset({"fatal", "quality", "policy"})


@dataclass(frozen=True, slots=True)
class Start:
    """The run has just been made; nothing of it exists yet."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A worker with a free slot wants the step (or its probe, or its undo)."""

    step: str
    worker: UUID
    iteration: str = ""


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The try under this fence returned.

    Attributes:
        spent: What it said with `ctx.spend`.
        awaits_reply: It is an undo that has sent a command, and is done when that is answered.
        items: How many items a fan-out has listed.
    """

    step: str
    fence: int
    result: Json = None
    iteration: str = ""
    spent: Json = None
    awaits_reply: bool = False
    items: int = 0


@dataclass(frozen=True, slots=True)
class TryFailed:
    """The try under this fence raised.

    Attributes:
        verdict: retry = transient; fatal = a definite no, nothing happened; unknown = may have happened;
            not_sent = certainly never left; quality = not good enough, and the same again would not be; policy = a
            rule forbids it, and the run has to stop.
        retry_after: What the other side asked for.
        spent: What it said with `ctx.spend`.
        over: Which budget it has exceeded, in words; '' for none.
    """

    step: str
    fence: int
    verdict: Verdict
    code: str
    message: str
    retry_after: timedelta | None = None
    iteration: str = ""
    spent: Json = None
    over: str = ""


@dataclass(frozen=True, slots=True)
class HandedBack:
    """A stopping worker gives the step back before the user's function was called."""

    step: str
    fence: int
    iteration: str = ""


@dataclass(frozen=True, slots=True)
class Limited:
    """A rate limit does not let the step (or its probe, or its undo) begin before `until`; nobody has claimed it."""

    step: str
    until: datetime
    limit: str
    iteration: str = ""


@dataclass(frozen=True, slots=True)
class Stale:
    """The lease of the worker that holds the step under this fence ended at `lease_ended_at`."""

    step: str
    fence: int
    lease_ended_at: datetime
    iteration: str = ""


@dataclass(frozen=True, slots=True)
class Wake:
    """`wake_at` has come; `step` is None for the run itself."""

    step: str | None
    generation: int
    iteration: str = ""


@dataclass(frozen=True, slots=True)
class Signalled:
    """The wait of this generation has been matched with a signal, whose body is `payload`."""

    step: str
    generation: int
    payload: Mapping[str, Json]
    iteration: str = ""


@dataclass(frozen=True, slots=True)
class Replied:
    """A participant has answered a command.

    Attributes:
        step: Name of the command's step; for an undo, that of the step it undoes.
        direction: Which of the two was answered.
        attempt: Number of the attempt that was answered.
        outcome: "done", "refused" or "nothing-to-undo".
        payload: Body of a reply to a command that was done, whose `version` it has.
        type: Type of that reply as an event; '' where the transport does not say one.
        code: Why it was refused.
    """

    step: str
    direction: Literal["do", "undo"]
    attempt: int
    outcome: str
    payload: Json = None
    version: int | None = None
    code: str = ""
    message: str = ""
    iteration: str = ""
    type: str = ""


@dataclass(frozen=True, slots=True)
class ChildSeen:
    """Somebody has looked after the child of a row, or its items; what was found is loaded with the row."""

    step: str
    iteration: str = ""


@dataclass(frozen=True, slots=True)
class ProbeFound:
    """The probe found the effect and its result."""

    result: Json


@dataclass(frozen=True, slots=True)
class ProbeAbsent:
    """The probe found nothing."""


@dataclass(frozen=True, slots=True)
class ProbeInProgress:
    """The other side still works on it."""

    ask_again: timedelta


@dataclass(frozen=True, slots=True)
class ProbeFailed:
    """The other side says it failed for good."""

    code: str


@dataclass(frozen=True, slots=True)
class ProbeError:
    """The probe itself raised: nothing was learned."""

    code: str
    message: str


ProbeAnswer: TypeAlias = ProbeFound | ProbeAbsent | ProbeInProgress | ProbeFailed | ProbeError


@dataclass(frozen=True, slots=True)
class Probed:
    """The probe (or the settling repeat of a SAFE step) under this fence answered."""

    step: str
    fence: int
    answer: ProbeAnswer
    iteration: str = ""
    spent: Json = None


ActName: TypeAlias = Literal[
    "retry", "skip", "mark_succeeded", "compensate", "resume", "cancel", "approve", "reject"
]


@dataclass(frozen=True, slots=True)
class Act:
    """A person decides what no machine may.

    Attributes:
        what: retry, skip and mark_succeeded name a step or an undo; compensate, resume and cancel mean the run.
        by: Who says so, for the history.
        reason: Why, in the person's own words.
        result: For mark_succeeded, the step's result as JSON of its declared class.
        undo: For cancel: also undo what was done.
        did_not_happen: The person says that a step in doubt did not take effect, and so clears the doubt.
        checked: What a look at what the run rests on found, where one was needed.
        budget: For retry: how much more the run and the step's tries may spend.
        generation: For approve and reject: which question was seen.
        hash: For approve and reject: of the parameters that were seen.
        roles: For approve and reject: those that the person claims.
        asker: For approve and reject: who, by an act, made the run ask; None when nobody did or it is not known.
    """

    what: ActName
    by: str
    reason: str
    step: str | None = None
    result: Json = None
    undo: bool = False
    did_not_happen: bool = False
    iteration: str = ""
    checked: Checked | None = None
    budget: Json = None
    generation: int | None = None
    hash: str | None = None
    roles: frozenset[str] = frozenset()
    asker: str | None = None


Fact: TypeAlias = (
    Start
    | Claim
    | Succeeded
    | TryFailed
    | HandedBack
    | Limited
    | Stale
    | Wake
    | Signalled
    | Replied
    | ChildSeen
    | Probed
    | Act
)
