"""What persons say to a question: approve, reject, or nothing until it expires."""

from __future__ import annotations

from ..schemas.decision import Decision as Decided
from ..schemas.options import Then
from ..schemas.states import StepKind, StepState
from . import advancing, cancelling, codec, forward, guarding, questions, retry, stopping, undoing, waiting
from .changing import replace
from .context import latest
from .definition import Node
from .draft import Draft
from .facts import Act
from .model import Decision, Json, Run, Said, Step
from .questions import Question
from .words import APPROVAL_EXPIRED, APPROVAL_REJECTED, APPROVAL_REQUIRED, PARAMS_FAILED


def meant(run: Run, fact: Act) -> Step | None:
    """Return the row that a person answers: the one that asks, of its rounds the latest."""
    asking = [step for step in run.steps if questions.open_in(step) is not None]
    if fact.step is None:
        return asking[0] if len(asking) == 1 else None
    if fact.iteration:
        return run.step(fact.step, fact.iteration)
    rounds = [step for step in asking if step.name == fact.step]
    return rounds[-1] if rounds else run.step(fact.step) or latest(run, fact.step)


def answer(draft: Draft, fact: Act, node: Node, step: Step) -> Decision:
    """Take an approval or a rejection, unless it is about something else than what is asked now."""
    question = questions.open_in(step)
    if question is None:
        return draft.refused(f"{step.name} is {step.state} and waits for no approval")
    problem = questions.objection(question, step, fact)
    if problem:
        return draft.refused(problem)
    what = guarding.about(draft, node, step)
    if what.problem:
        return draft.refused(f"what {step.name} is about cannot be told any more: {what.problem}")
    if what.hash != question.hash:
        return _anew(draft, node, step, what)
    said = Said(
        *(step.name, step.iteration, question.generation, question.hash, fact.by, tuple(sorted(fact.roles))),
        approved=fact.what == "approve",
        reason=fact.reason,
    )
    draft.said.append(said)
    if fact.what == "reject":
        return _rejected(draft, fact, node, step, question)
    return _approved(draft, fact, step, question.with_given(fact, draft.now))


def _anew(draft: Draft, node: Node, step: Step, what: guarding.About) -> Decision:
    """Ask again about what has changed; the answer was to something else and does not count."""
    old = questions.read(step)
    guard = node if step.kind is StepKind.UNDO else guarding.guard_of(draft, node, step)
    assert guard is not None and old is not None, "it was asked by somebody"
    guarding.voided(draft, step, old)
    undo = step.kind is StepKind.UNDO
    asked = guarding.question(guard, what, generation=old.generation + 1, undo=undo)
    again = draft.move(step, step.state, wake_at=step.wake_at, asked=asked.as_json())
    guarding.tell(draft, again, asked)
    return draft.decision(
        reason=f"what {step.name} is about has changed since it was asked for, so what was said so far is void, this "
        f"too. Generation {asked.generation} is asked for now: look again, and decide on what is there"
    )


def _approved(draft: Draft, fact: Act, step: Step, question: Question) -> Decision:
    _told(draft, fact, step, question)
    if len(question.given) < question.needed:
        draft.move(step, step.state, wake_at=step.wake_at, asked=question.as_json())
        return draft.decision()
    closed = replace(step, asked=question.closed())
    if step.kind is StepKind.APPROVAL:
        forward.succeed(draft, closed, _result(draft, fact, question, approved=True))
        return draft.decision()
    cancelling.go_back(draft)
    undo = step.kind is StepKind.UNDO
    state = StepState.COMPENSATION_PENDING if undo else StepState.PENDING
    told = {"code": None, "message": None}
    draft.announce(draft.move(closed, state, wake_at=draft.first_nudge(), **told))
    return draft.decision()


def _result(draft: Draft, fact: Act, question: Question, *, approved: bool) -> Json:
    by = tuple(one.by for one in question.given) if approved else (fact.by,)
    decided = Decided(approved=approved, by=by, reason=fact.reason, at=draft.now)
    return codec.encode(Decided, decided, "decision")


def _told(draft: Draft, fact: Act, step: Step, question: Question) -> None:
    counts: dict[str, object] = {"generation": question.generation, "roles": sorted(fact.roles) or None}
    if fact.what == "approve":
        counts |= {"approved": len(question.given), "needed": question.needed}
    cancelling.note_act(draft, fact, step, **counts)


def _rejected(draft: Draft, fact: Act, node: Node, step: Step, question: Question) -> Decision:
    _told(draft, fact, step, question)
    closed = replace(step, asked=question.closed())
    if step.kind is StepKind.UNDO:
        # What was done stays done, and that is never the end of it: it stands in front of a person as failed.
        told = {"code": APPROVAL_REJECTED, "message": f"rejected by {fact.by}"}
        failed = draft.move(closed, StepState.COMPENSATION_FAILED, wake_at=draft.reminder(), **told)
        draft.note("incident.candidate", failed, code=APPROVAL_REJECTED, undo_of=step.undo_of)
        undoing.proceed(draft)
        return draft.decision()
    guard = guarding.guard_of(draft, node, step)
    assert guard is not None and guard.approval is not None, "it was asked by somebody"
    then = guard.approval.on_reject
    if then is Then.CONTINUE and step.kind is StepKind.APPROVAL:
        forward.succeed(draft, closed, _result(draft, fact, question, approved=False))
    elif then is Then.CONTINUE:
        skipped = draft.move(closed, StepState.SKIPPED, code=APPROVAL_REJECTED)
        draft.note("step.skipped", skipped, code=APPROVAL_REJECTED)
        advancing.go_on(draft, skipped)
    else:
        _fail(draft, guard, closed, undo=then is Then.COMPENSATE)
    return draft.decision()


def _fail(draft: Draft, guard: Node, step: Step, *, undo: bool) -> None:
    stops = not draft.stopping and advancing.would_stop(draft, step)
    failed = draft.move(step, StepState.FAILED, code=APPROVAL_REJECTED, message="rejected")
    draft.note("step.failed", failed, code=APPROVAL_REJECTED)
    if stops and step.name != guard.name:
        stopping.stop(draft, APPROVAL_REJECTED, undo=undo)
    else:
        advancing.go_on(draft, failed)


def expired(draft: Draft, node: Node, step: Step) -> Decision:
    """Do what `on_expiry` says when nobody has answered in time."""
    spec = node.approval
    assert spec is not None
    draft.note("approval.expired", step, then=spec.on_expiry.name)
    question = questions.read(step)
    closed = step if question is None else replace(step, asked=question.closed())
    if spec.on_expiry is Then.RETRY and step.attempt < 2 and _ask(draft, node, closed, attempt=2):
        return draft.decision()
    then = Then.PERSON if spec.on_expiry is Then.RETRY else spec.on_expiry
    waiting.end(draft, closed, then, APPROVAL_EXPIRED)
    return draft.decision()


def ask_again(draft: Draft, fact: Act, node: Node, step: Step) -> Decision:
    """Ask anew what has expired, could not be told, or was rejected, because a person wants so."""
    if step.kind is StepKind.APPROVAL:
        what = guarding.of_approval(draft, node)
        if what.problem:
            return draft.refused(f"{step.name} cannot be asked for: {what.problem}")
        cancelling.note_act(draft, fact, step)
        cancelling.go_back(draft)
        _ask(draft, node, step, attempt=1)
        return draft.decision()
    old = questions.read(step)
    assert old is not None, "only what was asked for can be rejected"
    cancelling.note_act(draft, fact, step)
    cancelling.go_back(draft)
    guarding.hold(draft, step, node, old, guarding.about(draft, node, step), code=APPROVAL_REQUIRED)
    return draft.decision()


def _ask(draft: Draft, node: Node, step: Step, *, attempt: int) -> bool:
    """Open an approval's question anew; False when nobody can say what it is about."""
    spec = node.approval
    assert spec is not None
    what, old = guarding.of_approval(draft, node), questions.read(step)
    if what.problem:
        return False
    asked = guarding.question(node, what, generation=1 if old is None else old.generation + 1)
    until = retry.later(draft.now, spec.expires)
    told = {"attempt": attempt, "code": None, "message": None}
    again = draft.move(step, StepState.WAITING, wake_at=until, asked=asked.as_json(), **told)
    guarding.tell(draft, again, asked, until=until.isoformat(), then=spec.on_expiry.name)
    return True


def bypass(step: Step, fact: Act) -> str:
    """Say why an act would get a row past the approval that it needs; '' when it would not."""
    if fact.what in {"approve", "reject"}:
        return ""
    if questions.open_in(step) is not None and step.kind is not StepKind.UNDO:
        return f"{step.name} waits for approval: approve it, or reject it"
    if step.kind is StepKind.APPROVAL and fact.what != "retry":
        words = "mend what it is about, then retry it" if step.code == PARAMS_FAILED else "retry asks anew"
        return f"{step.name} is an approval, which only approving can give: {words}"
    return ""
