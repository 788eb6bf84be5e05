"""What ends a wait: its signal, its timeout, or the probe's answer."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from ..schemas.codecs import Unreadable
from ..schemas.events import Event
from ..schemas.options import Then
from ..schemas.parts import faults_of
from ..schemas.reading import brought_up
from ..schemas.states import FINAL_RUN_STATES, FINAL_STEP_STATES, RunState, StepState
from . import advancing, doubting, forward, retry, settling, stopping, undoing, waits
from .definition import Node
from .draft import Draft
from .facts import ProbeAbsent, ProbeAnswer, ProbeFailed, ProbeFound
from .model import Decision, Json, Step
from .settling import REARM_CAP
from .words import CANCELLED_NO_UNDO, MATCH_FAILED, SIGNAL_INVALID, WAIT_TIMEOUT, clean, clean_code


def resume(draft: Draft, node: Node, step: Step, generation: int, payload: Mapping[str, Json]) -> Decision:
    """Answer the message that a wait has been matched."""
    if not waits.is_open(step) or step.generation != generation or draft.run.state in FINAL_RUN_STATES:
        draft.note("signal.late", step, generation=generation, state=step.state.value)
        return draft.ignored(
            f"{step.name} is {step.state} in generation {step.generation}: the signal is late"
        )
    return signalled(draft, node, step, payload)


def signalled(draft: Draft, node: Node, step: Step, payload: Mapping[str, Json]) -> Decision:
    """Satisfy a wait with the signal that it was matched with."""
    draft.note("run.resumed", step, by="signal")
    _complete(draft, node, step, dict(payload))
    return draft.decision()


def _complete(draft: Draft, node: Node, step: Step, payload: Json) -> None:
    assert node.wait is not None
    try:
        # A signal may have been stored by a process that knew an older class of the event.
        payload = brought_up(node.wait.event, payload, step.signal_version)
        node.decode(payload)
    except (ValueError, Unreadable) as error:  # pydantic's ValidationError, or what JSON cannot hold
        doubting.person(draft, step, SIGNAL_INVALID, clean(_misfit(node.wait.event, error)))
        return
    forward.succeed(draft, step, payload)


def _misfit(event: type[Event], error: Exception) -> str:
    """Say why a signal is not its event any more; nothing of its body, since history keeps it."""
    if isinstance(error, Unreadable):
        raised = error.__context__
        words = error.code if raised is None else f"{error.code}: {type(raised).__name__}"
    else:
        words = faults_of(event, error)
    return f"it is no {event.__name__}: {words}"


def timed_out(draft: Draft, node: Node, step: Step) -> Decision:
    """Do what `on_timeout` says; the caller has seen that no signal is there."""
    assert node.wait is not None
    then = node.wait.on_timeout
    draft.note("wait.timed_out", step, then=then.name)
    if then is Then.RECONCILE:
        _ask(draft, step)
    elif then is Then.RETRY:
        _rearm(draft, node, step)
    else:
        waits.close(draft, step)
        end(draft, step, then, WAIT_TIMEOUT)
    return draft.decision()


def end(draft: Draft, step: Step, then: Then, code: str) -> None:
    """End a row whose time is over; a wait has been closed before."""
    if then is Then.CANCEL:
        draft.move(step, StepState.CANCELLED, code=code)
        _cancel(draft, code)
    elif then is Then.CONTINUE:
        skipped = draft.move(step, StepState.SKIPPED, code=code)
        draft.note("step.skipped", skipped, code=code)
        advancing.go_on(draft, skipped)
    elif then is Then.COMPENSATE:
        ended = draft.move(step, StepState.FAILED, code=code)
        draft.note("step.failed", ended, code=code)
        advancing.go_on(draft, ended)
    else:
        doubting.person(draft, step, code, None)


def _cancel(draft: Draft, code: str) -> None:
    """Cancel the run without undo, at once or as soon as nothing beside the wait is under way."""
    alone = all(step.state in FINAL_STEP_STATES for step in draft.run.steps)
    if draft.run.state is RunState.WAITING and alone:
        draft.note("run.cancelled", code=code)
        draft.move_run(RunState.CANCELLED, code=code, cause=code)
        return
    draft.move_run(RunState.CANCEL_REQUESTED, cause=CANCELLED_NO_UNDO, code=None)
    stopping.halt(draft)
    undoing.proceed(draft)


def _ask(draft: Draft, step: Step) -> None:
    """Send the probe; the wait stays open, so that its signal may still win."""
    values = {"doubt": True, "doubt_at": step.doubt_at or draft.now}
    asked = draft.move(step, StepState.UNKNOWN, wake_at=draft.first_nudge(), **values)
    draft.note("step.unknown", asked, code=WAIT_TIMEOUT)
    draft.announce(asked)


def _rearm(draft: Draft, node: Node, step: Step) -> None:
    """Wait once more under a new generation; then a person."""
    assert node.wait is not None
    waits.close(draft, step)
    if step.attempt > 1:
        doubting.person(draft, step, WAIT_TIMEOUT, None)
        return
    key, problem = waits.match(draft, node)
    if problem:
        doubting.person(draft, step, MATCH_FAILED, problem)
        return
    again = draft.move(
        step,
        StepState.WAITING,
        wake_at=retry.later(draft.now, node.wait.timeout),
        generation=step.generation + 1,
        attempt=step.attempt + 1,
    )
    waits.register(draft, node, again, key)


def probed(draft: Draft, node: Node, step: Step, answer: ProbeAnswer) -> Decision:
    """Answer the probe of a wait that timed out."""
    if step.signal is not None:
        draft.note("run.resumed", step, by="signal")
        _complete(draft, node, step, dict(step.signal))
        settling.record(draft, step, answer, "NONE", "the signal came first")
    elif isinstance(answer, ProbeFound):
        waits.close(draft, step)
        draft.note("run.resumed", step, by="probe")
        _complete(draft, node, step, answer.result)
        settling.record(draft, step, answer, "MARK_AS_SUCCESS", "the probe found what the wait was for")
    elif isinstance(answer, ProbeFailed):
        _escalate(draft, step, answer, clean_code(answer.code), "the other side says that it will not come")
    elif draft.now >= (until := settling.gives_up_at(draft, node, step)):
        _escalate(draft, step, answer, WAIT_TIMEOUT, "asked for as long as give_up says")
    else:
        at = min(_next_ask(draft, node, step, answer), until)
        draft.move(step, StepState.WAITING, wake_at=at)
        settling.record(draft, step, answer, "NONE", "not there yet; the wait goes on")
    return draft.decision()


def _escalate(draft: Draft, step: Step, answer: ProbeAnswer, code: str, reason: str) -> None:
    waits.close(draft, step)
    doubting.person(draft, step, code, None)
    settling.record(draft, step, answer, "ESCALATE", reason)


def _next_ask(draft: Draft, node: Node, step: Step, answer: ProbeAnswer) -> datetime:
    assert node.wait is not None
    if isinstance(answer, ProbeAbsent):
        return retry.later(draft.now, min(node.wait.timeout, REARM_CAP))
    return settling.next_ask(draft.now, step, answer)
