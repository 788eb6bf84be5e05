"""What persons are asked to approve, and who has said what so far: kept as JSON in the row that waits for it.

A question is bound to its row, a generation and the hash of its parameters. Asked anew, it has the next generation, and
what was said to an older one counts no more.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from datetime import datetime

from ..schemas.states import Risk, StepState
from .facts import Act
from .model import Json, Step

#: States of a row in which somebody may answer.
_ASKING = frozenset({StepState.WAITING, StepState.MANUAL_REQUIRED})


@dataclass(frozen=True, slots=True)
class Given:
    """An approval.

    Attributes:
        at: RFC 3339.
    """

    by: str
    roles: tuple[str, ...]
    reason: str
    at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question to persons.

    Attributes:
        generation: From 1; rises whenever it is asked anew.
        needed: So many different persons have to approve.
        roles: Who approves needs one of them; empty for anybody.
        hash: SHA-256 of the canonical JSON of what is approved, in hexadecimal digits.
        params: What of it is shown to persons.
        open: Whether it can still be answered.
    """

    generation: int
    risk: Risk
    needed: int
    roles: tuple[str, ...]
    hash: str
    params: Json = None
    given: tuple[Given, ...] = ()
    open: bool = True

    def as_json(self) -> Json:
        """Return it as it is stored."""
        return asdict(self) | {
            "risk": self.risk.value,
            "roles": list(self.roles),
            "given": [*map(asdict, self.given)],
        }

    def closed(self) -> Json:
        """Return it as it is stored when nobody can answer it any more."""
        return replace(self, open=False).as_json()

    def with_given(self, fact: Act, now: datetime) -> Question:
        """Return it with one more approval."""
        given = Given(fact.by, tuple(sorted(fact.roles)), fact.reason, now.isoformat())
        return replace(self, given=(*self.given, given))


def read(step: Step) -> Question | None:
    """Return the question of a row, None when it never had one."""
    if step.asked is None:
        return None
    kept = dict(step.asked)
    given = tuple(Given(**(one | {"roles": tuple(one["roles"])})) for one in kept.pop("given"))
    return Question(**(kept | {"risk": Risk(kept["risk"]), "roles": tuple(kept["roles"])}), given=given)


def open_in(step: Step) -> Question | None:
    """Return the question that a row waits with, None when it waits for no approval."""
    question = read(step) if step.state in _ASKING else None
    return question if question is not None and question.open else None


def objection(question: Question, step: Step, fact: Act) -> str:
    """Say why what a person says does not count as an answer to this question; '' when it does."""
    if fact.generation != question.generation or fact.hash != question.hash:
        return (
            f"what you decided on is generation {fact.generation} of {step.name}, and generation {question.generation} "
            "is asked for now, because what it is about has changed. Look again, and decide on what is there now"
        )
    if question.roles and not fact.roles & set(question.roles):
        mine = ", ".join(sorted(fact.roles)) or "none"
        return f"{step.name} needs one of the roles {', '.join(question.roles)}; {fact.by} acts with {mine}"
    if fact.what == "reject":
        return ""
    if any(_same(one.by, fact.by) for one in question.given):
        left = question.needed - len(question.given)
        return f"{fact.by} has approved {step.name} already and counts once; {left} more needed, by somebody else"
    if question.risk is Risk.CRITICAL and fact.asker is not None and _same(fact.asker, fact.by):
        return f"{step.name} is CRITICAL, and {fact.by} asked for it: two others have to approve"
    return ""


def _same(one: str, other: str) -> bool:
    return one.strip().casefold() == other.strip().casefold()
