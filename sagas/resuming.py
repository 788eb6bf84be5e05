"""Going on after a run stood in front of a person: what it rests on is looked at first, and may hold it back.

What is looked at needs IO and is done by a worker; here is decided what follows. Only a run that goes forward is held
back: what is stopping goes on stopping, whatever has changed meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ..schemas.artifacts import Artifact, references
from ..schemas.errors import DefinitionError
from ..schemas.states import RunState, StepState
from .functions import check_async, check_parameters
from .model import Decision, Json, Run
from .words import RESUME_BLOCKED, REVIEW_REQUIRED

if TYPE_CHECKING:
    from .definition import Definition
    from .draft import Draft
    from .facts import Act
    from .saga import Saga
    from .specs import AsyncFn

Outcome: TypeAlias = Literal["PASSED", "REVIEWED", "REVIEW_REQUIRED", "RESUME_BLOCKED"]
#: Acts after which a run that waits for a person goes on.
GOING_ON = frozenset({"retry", "skip", "mark_succeeded", "resume"})


@dataclass(frozen=True, slots=True)
class Reason:
    """What a check found that stands in the way.

    Attributes:
        code: Such as ARTIFACT_MISSING, or what the saga's own check refused with.
        text: For people.
        blocks: Whether it blocks; else a person may look at it and decide.
    """

    code: str
    text: str
    blocks: bool

    @property
    def json(self) -> Json:
        """As it is stored."""
        return {"code": self.code, "text": self.text, "blocks": self.blocks}


@dataclass(frozen=True, slots=True)
class Checked:
    """What a look at a run found.

    Attributes:
        outcome: REVIEWED when a person had seen all of its reasons, none of which blocks.
        version: The run's version that was looked at; of another one nothing is known.
    """

    outcome: Outcome
    version: int
    reasons: tuple[Reason, ...] = ()


def outcome_of(reasons: tuple[Reason, ...]) -> Outcome:
    """Return what follows from reasons."""
    if any(reason.blocks for reason in reasons):
        return RESUME_BLOCKED
    return REVIEW_REQUIRED if reasons else "PASSED"


def concerns(definition: Definition, run: Run, what: str) -> bool:
    """Whether something has to be looked at before an act: the run goes forward, and rests on something."""
    forward = what in GOING_ON and run.state is RunState.MANUAL_REQUIRED and run.cause is None
    return forward and (
        definition.revalidate is not None
        or definition.fingerprint is not None
        or next(rests_on(run), None) is not None
    )


def rests_on(run: Run) -> Iterator[Artifact]:
    """Find the artifacts that a run's input and the results of its steps refer to, each once."""
    seen = set[Artifact]()
    values = [run.input, *(step.result for step in run.steps if step.state is StepState.SUCCEEDED)]
    for value in values:
        for found in references(value):
            if found not in seen:
                seen.add(found)
                yield found


def held_back(draft: Draft, fact: Act) -> Decision | None:
    """Hold an act back where what the run rests on has changed; None when it may go on."""
    checked = fact.checked
    if checked is None or not concerns(draft.definition, draft.run, fact.what):
        return None
    codes = [reason.code for reason in checked.reasons]
    if checked.outcome == "PASSED":
        draft.note("resume.passed", act=fact.what, by=fact.by)
        return None
    texts = [reason.text for reason in checked.reasons]
    if checked.outcome == "REVIEWED":
        draft.note("resume.reviewed", act=fact.what, by=fact.by, reason=fact.reason, codes=codes, found=texts)
        return None
    draft.note(
        "resume.blocked" if checked.outcome == RESUME_BLOCKED else "resume.review_required",
        act=fact.what,
        by=fact.by,
        code=checked.outcome,
        codes=codes,
        found=texts,
    )
    draft.run = replace(draft.run, code=checked.outcome)
    words = "; ".join(f"{reason.code}: {reason.text}" for reason in checked.reasons)
    return draft.refused(f"{checked.outcome}: {words}")


def declare(saga: Saga[Any], fn: AsyncFn) -> None:
    """Take a saga's own check.

    Raises:
        DefinitionError: MP107, MP111, MP117 as for a step; MP127 for a second one.
    """
    saga.open_for("revalidate")
    if saga.revalidation is not None:
        raise DefinitionError(
            "MP127", f"{saga.title}: a second @revalidate. A saga has one check; call both from one function."
        )
    check_async(saga.title, "revalidate", fn)
    check_parameters(saga.title, "revalidate", fn, "ctx")
    saga.revalidation = fn


def refusing(what: str) -> Callable[..., None]:
    """Return what stands in a check's context for everything that changes something.

    Args:
        what: As the user wrote it.
    """

    def refuse(*_: object, **__: object) -> None:
        raise DefinitionError(
            "MP129", f"revalidate: {what} has no place in a check, which only looks. Do it in a step."
        )

    return refuse
