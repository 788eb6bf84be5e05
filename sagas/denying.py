"""A step that is not tried again: its tries are used up, it failed for good, or a rule forbids it."""

from __future__ import annotations

from ..schemas.options import Then
from ..schemas.states import StepState
from . import advancing, doubting, rolling, stopping
from .definition import Node
from .draft import Draft
from .model import Step
from .words import OUTCOME_UNKNOWN


def ended(draft: Draft, node: Node, step: Step, *, denied: bool) -> None:
    """End a step whose own code says that it is not to be tried again.

    What earlier tries may have done it does not know, so a doubt stays and is settled first.

    Args:
        denied: A rule forbids it, so that the run stops: no person is asked, and no part of the flow tolerates it.
    """
    if not denied or draft.stopping:
        used_up(draft, node, step)
        return
    code = step.code or OUTCOME_UNKNOWN
    if step.doubt:
        stopping.stop(draft, code, undo=node.compensates)
        used_up(draft, node, step)
        return
    draft.move(step, StepState.FAILED)
    stopping.stop(draft, code, undo=node.compensates)


def used_up(draft: Draft, node: Node, step: Step) -> None:
    """Give in, unless what may have happened has to be known first."""
    if not step.doubt:
        give_in(draft, node, step)
    elif draft.stopping:
        doubting.unknown(draft, step) if doubting.must_be_known(draft, node) else give_in(draft, node, step)
    elif node.probe is not None or node.irreversible:
        doubting.unknown(draft, step)
    elif node.on_failure in {Then.COMPENSATE, Then.FAIL} and node.undo is not None and not node.undo.blind:
        _undoable(draft, node, step)
    else:
        give_in(draft, node, step)


def _undoable(draft: Draft, node: Node, step: Step) -> None:
    """Find out what a step in doubt has done, which is undone with the run: now, or, where it is tolerated, later."""
    stops = advancing.would_stop(draft, step)
    if stops and node.on_failure is Then.FAIL:
        give_in(draft, node, step)
        return
    if stops:
        stopping.stop(draft, step.code or OUTCOME_UNKNOWN, undo=True)
    doubting.unknown(draft, step)


def give_in(draft: Draft, node: Node, step: Step) -> None:
    """End a step that failed for good, and do what its `on_failure` says."""
    code = step.code or OUTCOME_UNKNOWN
    if not draft.stopping and node.on_failure is Then.PERSON:
        doubting.person(draft, step, code, step.message)
    elif not draft.stopping and node.on_failure is Then.RETRY:
        rolling.hold(draft, node, step, code)
    else:
        advancing.go_on(draft, draft.move(step, StepState.FAILED))
