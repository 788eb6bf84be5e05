"""Settling an unknown outcome: what a probe, or the settling repeat of a SAFE step, has answered."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Literal, TypeAlias

from ..schemas.states import StepState
from . import advancing, codec, denying, doubting, forward, retry, sending, waits
from .definition import Node
from .draft import Draft
from .facts import ProbeAbsent, ProbeAnswer, ProbeError, ProbeFailed, ProbeFound, ProbeInProgress
from .model import Decision, Json, Settled, Step
from .words import OUTCOME_UNKNOWN, clean, clean_code

Repair: TypeAlias = Literal["NONE", "MARK_AS_SUCCESS", "RETRY", "ESCALATE", "FAIL"]

#: Longest pause between two probes of a wait whose answer was "absent".
REARM_CAP = timedelta(hours=1)


def probed(draft: Draft, node: Node, step: Step, answer: ProbeAnswer) -> Decision:
    """Answer the probe of a step whose outcome is unknown."""
    match answer:
        case ProbeFound(result=result):
            forward.succeed(draft, step, result)
            record(draft, step, answer, "MARK_AS_SUCCESS", "the probe found the effect")
        case ProbeFailed(code=code):
            certain = replace(step, doubt=False, doubt_at=None, code=clean_code(code), message=None)
            draft.note("step.failed", step, code=certain.code, verdict="fatal")
            denying.give_in(draft, node, certain)
            record(draft, step, answer, "FAIL", "the other side says that it failed for good")
        case ProbeAbsent():
            _absent(draft, node, step, answer)
        case ProbeInProgress() | ProbeError():
            _ask_again(draft, node, step, answer)
    advancing.tidy(draft)
    return draft.decision()


def _absent(draft: Draft, node: Node, step: Step, answer: ProbeAnswer) -> None:
    """Believe "absent" only from a probe that was claimed once `settle` had passed.

    When the answer comes says nothing about when the question was put: a prober may freeze in between.
    """
    counts_from = retry.later(step.doubt_at or draft.now, node.settle)
    if (step.started_at or draft.now) < counts_from:
        _ask_at(draft, step, counts_from)
        record(draft, step, answer, "NONE", f"absent counts only when asked from {counts_from.isoformat()}")
        return
    certain = replace(step, doubt=False, doubt_at=None)
    if draft.stopping or retry.used_up(node.retry, step, draft.now):
        denying.give_in(draft, node, certain)
        record(draft, step, answer, "FAIL", "nothing happened, and it is not tried again")
        return
    if node.command is not None:
        sending.send_again(draft, node, certain)
    else:
        draft.announce(draft.move(certain, StepState.PENDING, wake_at=draft.first_nudge()))
    record(draft, step, answer, "RETRY", "nothing happened")


def _ask_again(draft: Draft, node: Node, step: Step, answer: ProbeAnswer) -> None:
    until = gives_up_at(draft, node, step)
    if draft.now >= until:
        doubting.person(draft, step, OUTCOME_UNKNOWN, step.message)
        record(draft, step, answer, "ESCALATE", "asked for as long as give_up says")
        return
    _ask_at(draft, step, min(next_ask(draft.now, step, answer), until))
    failed = isinstance(answer, ProbeError)
    record(draft, step, answer, "NONE", "the probe itself failed" if failed else "not settled yet")


def gives_up_at(draft: Draft, node: Node, step: Step) -> datetime:
    """When asking ends and a person is called."""
    return retry.later(step.doubt_at or draft.now, node.give_up)


def next_ask(now: datetime, step: Step, answer: ProbeAnswer) -> datetime:
    """When to ask again after an answer that settled nothing."""
    if isinstance(answer, ProbeInProgress):
        return retry.later(now, answer.ask_again)
    return retry.later(now, retry.probe_backoff(step.probes))


def _ask_at(draft: Draft, step: Step, at: datetime) -> None:
    """Ask again at that instant, or at once when it has passed."""
    if at > draft.now:
        draft.move(step, StepState.UNKNOWN, wake_at=at)
    else:
        draft.announce(draft.move(step, StepState.UNKNOWN, wake_at=draft.first_nudge()))


def probe_lost(draft: Draft, node: Node, step: Step, code: str) -> Decision:
    """Ask again at once after a probe's worker was lost, or a person when that has gone on for too long."""
    fenced = replace(step, fence=step.fence + 1)
    draft.note("step.probe_lost", step, code=code)
    if draft.now >= gives_up_at(draft, node, step):
        waits.close(draft, step)
        doubting.person(draft, fenced, OUTCOME_UNKNOWN, "the probe's worker was lost again and again")
        record(draft, step, ProbeError(code, "the probe's worker was lost"), "ESCALATE", "give_up has passed")
        return draft.decision()
    asked = draft.move(fenced, StepState.UNKNOWN, wake_at=draft.first_nudge())
    draft.announce(asked)
    return draft.decision()


def record(draft: Draft, before: Step, answer: ProbeAnswer, decision: Repair, reason: str) -> None:
    """Add the reconciliation row of an answer that has just been acted on."""
    after = draft.run.step(before.name, before.iteration)
    assert after is not None
    draft.settled.append(
        Settled(
            step=before.name,
            before=before.state.value,
            evidence=evidence(answer),
            decision=decision,
            after=after.state.value,
            reason=reason,
            iteration=before.iteration,
        )
    )


def told(answer: ProbeAnswer) -> dict[str, Json]:
    """Return a probe's answer for the history, which holds no results: of one there is only the hash."""
    said = evidence(answer)
    return said if "result" not in said else {"answer": "found", "sha256": codec.digest(said["result"]).hex()}


def evidence(answer: ProbeAnswer) -> dict[str, Json]:
    """Return a probe's answer as JSON."""
    match answer:
        case ProbeFound(result=result):
            return {"answer": "found", "result": result}
        case ProbeAbsent():
            return {"answer": "absent"}
        case ProbeInProgress(ask_again=pause):
            return {"answer": "in_progress", "ask_again_s": pause.total_seconds()}
        case ProbeFailed(code=code):
            return {"answer": "failed", "code": clean_code(code)}
        case ProbeError(code=code, message=message):
            return {"answer": "error", "code": clean_code(code), "message": clean(message)}
