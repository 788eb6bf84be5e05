"""What a reader may decide about a run and its steps, and why not. Pure; the state machine has the last word."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from pydantic import BaseModel

from ...recovery.permissions import Act, Actor, Permission, permission
from ...sagas.words import APPROVAL_REJECTED
from ...schemas.states import FINAL_RUN_STATES, Risk, RunState, StepKind, StepState
from ..model import RunDetail, StepLine
from ..worklist import possible
from .worklist import Question

_PERSONS: Final = frozenset({StepState.MANUAL_REQUIRED, StepState.COMPENSATION_FAILED})
_LABELS: Final = {
    "retry": "Retry",
    "skip": "Skip",
    "mark_succeeded": "Mark succeeded",
    "approve": "Approve",
    "reject": "Reject",
    "compensate": "Compensate",
    "resume": "Resume",
    "cancel": "Cancel",
}
_SAYS: Final = {
    "retry": "it begins anew with all its tries, under its old operation key",
    "skip": "the run goes on without its result",
    "mark_succeeded": "it took effect, as you have seen on the other side",
    "approve": "it happens",
    "reject": "it does not happen",
    "compensate": "what stands here has failed, and what was done is undone, the youngest first",
    "resume": "the run goes on from where it stands",
    "cancel": "nothing new begins; what is under way ends first",
}
_UNDO_SAYS: Final = {
    "retry": "the undo is tried again, with all its tries",
    "skip": "it is not carried out: what the step did stays as it is, and the other undos go on",
    "mark_succeeded": "what the step did has been taken back, as you have seen on the other side",
}
_KIND_SAYS: Final = {
    StepKind.WAIT: {"retry": "it is waited for anew, for the whole of its timeout"},
    StepKind.APPROVAL: {"retry": "it is asked for anew"},
    StepKind.TIMER: {"retry": "its time is worked out anew"},
}
_DANGER: Final = frozenset({"skip", "compensate", "cancel", "reject"})


class Choice(BaseModel):
    """An act as a page offers it.

    Attributes:
        says: What follows.
        why_not: Why it is not to be had; "" where it is.
        asks: What the form asks beside the reason: result, undo, did_not_happen, reviewed, role.
        second: That a second person is needed, in words; "" where none is.
        roles: To choose from, for role.
    """

    name: str
    label: str
    says: str
    why_not: str = ""
    danger: bool = False
    asks: list[str] = []
    second: str = ""
    roles: list[str] = []


def of_step(
    actor: Actor,
    run: RunDetail,
    step: StepLine,
    *,
    question: Question | None,
    severity: Risk,
    groups: Collection[str] = (),
) -> list[Choice]:
    """Return what may be decided about a step; nothing about one that does not stand in front of a person.

    Args:
        question: What is asked about it.
        severity: Of its workflow.
        groups: Those of whoever reads; an approval may ask for one of them.
    """
    if step.state not in _PERSONS and question is None:
        return []
    undo = step.undo_of is not None
    can = {
        act.replace("-", "_")
        for act in possible(step.kind.lower(), run.state, run.cause, asked=question is not None, undo=undo)
    }
    names = (["approve", "reject"] if question else []) + ["retry", "skip", "mark_succeeded"]
    risk = severity if question is None else max(severity, question.risk, key=list(Risk).index)
    made = []
    for name in names:
        if question is not None and not undo and name not in can:
            continue
        why = "" if name in can else "It waits for a yes or no first."
        if (
            question is not None
            and name == "approve"
            and actor.name.lower() in map(str.lower, question.given)
        ):
            why = "You have approved it already; another person has to as well."
        if question is not None and name in {"approve", "reject"} and not why:
            why = _needs_role(actor, run, question, groups)
        choice = _choice(actor, run, name, why, risk, says=_said_of(step, question))
        if question is not None and name in {"approve", "reject"}:
            choice = choice.model_copy(update=_asked(question, name))
        made.append(choice.model_copy(update={"asks": choice.asks + _asks(name, step)}))
    return made


def _needs_role(actor: Actor, run: RunDetail, question: Question, groups: Collection[str]) -> str:
    own = {*groups, *(role.value.lower() for role in actor.roles(run.tenant, run.saga))}
    if not question.roles or own & set(question.roles):
        return ""
    return (
        f"It needs one of the roles {', '.join(question.roles)}, and you have none of them here. On your own machine "
        "start `milepost console --role ROLE`; elsewhere it is a group of your sign-in. Or say `milepost approve "
        "--role ROLE`."
    )


def _said_of(step: StepLine, question: Question | None) -> dict[str, str]:
    """Return what follows from each act on a step."""
    if step.undo_of is None:
        return _SAYS | _KIND_SAYS.get(step.kind, {})
    anew = {"retry": "it is asked for anew, and nothing is undone before a yes"}
    return _UNDO_SAYS | (anew if step.code == APPROVAL_REJECTED else {})


def _asked(question: Question, name: str) -> dict[str, object]:
    left = "" if question.left <= 1 else f"; {question.left} persons have to, each once"
    second = ""
    if question.needed > 1:
        second = (
            f"{question.risk}: {question.needed} different persons have to approve, {question.left} more."
        )
    return {
        "asks": ["role"] if question.roles else [],
        "roles": question.roles,
        "second": second,
        "says": f"{_SAYS[name]}{left if name == 'approve' else ''}",
    }


def _asks(name: str, step: StepLine) -> list[str]:
    if name == "mark_succeeded":
        return ["result"]
    in_doubt = name == "retry" and step.undo_of is None and (step.doubt or step.code == "UNKNOWN")
    return ["did_not_happen"] if in_doubt else []


def of_run(actor: Actor, run: RunDetail, *, severity: Risk, parked: bool, to_review: bool) -> list[Choice]:
    """Return what may be decided about a run.

    Args:
        severity: Of its workflow.
        parked: No live process has its version.
        to_review: A look at it has found something that a person may take upon himself.
    """
    whys = {
        "resume": _why_no_resume(run, parked=parked),
        "compensate": _why_no_compensate(run),
        "cancel": _why_no_cancel(run),
    }
    made = [_choice(actor, run, name, why, severity) for name, why in whys.items()]
    asks = {"cancel": ["undo"], "resume": ["reviewed"] if to_review else []}
    return [one.model_copy(update={"asks": asks.get(one.name, [])}) for one in made]


def _why_no_resume(run: RunDetail, *, parked: bool) -> str:
    if run.state in FINAL_RUN_STATES:
        return "It has ended."
    if parked:
        return ""
    if run.state not in {RunState.MANUAL_REQUIRED, RunState.COMPENSATION_FAILED}:
        return "Nothing holds it: it goes on by itself."
    held = [step.label for step in run.steps if step.state in _PERSONS]
    return f"Decide about {', '.join(held)} instead: the run goes on with it." if held else ""


def _why_no_compensate(run: RunDetail) -> str:
    if run.state in FINAL_RUN_STATES:
        return "It has ended."
    if run.state is RunState.MANUAL_REQUIRED:
        return ""
    if run.state in {RunState.COMPENSATING, RunState.COMPENSATION_FAILED}:
        return "It is being undone already."
    return "Only a run in front of a person can be given up; cancel it with undo instead."


def _why_no_cancel(run: RunDetail) -> str:
    if run.state in FINAL_RUN_STATES:
        return "It has ended."
    if run.state in {RunState.COMPENSATING, RunState.COMPENSATION_FAILED}:
        return "It is being undone, and an undo that has begun is never cancelled."
    return f"It is stopping already, because of {run.cause}." if run.cause else ""


def _choice(
    actor: Actor, run: RunDetail, name: str, why: str, risk: Risk, *, says: dict[str, str] = _SAYS
) -> Choice:
    found = permission(actor, Act(name), tenant=run.tenant, saga=run.saga, risk=risk)
    if found is Permission.FORBIDDEN:
        why = _forbidden(actor, run)
    second = ""
    if found is Permission.APPROVAL_REQUIRED:
        second = f"{risk}: it is carried out once a second person, who is not you, has confirmed it."
    return Choice(
        name=name,
        label=_LABELS[name],
        says=says.get(name, _SAYS[name]),
        why_not=why,
        danger=name in _DANGER,
        second=second,
    )


def _forbidden(actor: Actor, run: RunDetail) -> str:
    roles: Sequence[str] = sorted(role.lower() for role in actor.roles(run.tenant, run.saga))
    have = f"your roles here are: {', '.join(roles)}" if roles else "you have no role here"
    return f"Not allowed: {have}."
