"""Budgets: what was spent, what is left, and who stops when it is over.

What was spent is kept on the step rows, over all tries, and what a person has granted beside it; a run has spent what
its rows have. Over means more than the budget: a step may begin while nothing is over, and one more try fits.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final, TypeAlias

from ..schemas.budget import Budget
from ..schemas.errors import DefinitionError
from ..schemas.states import HELD_STEP_STATES, StepKind, StepState
from .changing import replace
from .definition import Definition, Node
from .draft import Draft
from .facts import Fact, HandedBack, Probed, Stale, Succeeded, TryFailed, Wake
from .model import Decision, Json, Run, Step
from .standing import UNDOUBTED
from .words import BUDGET_EXCEEDED

#: Amounts by name; runtime in seconds.
Amounts: TypeAlias = Mapping[str, Decimal]

NAMES: Final = ("attempts", "runtime", "tokens", "cost", "tool_calls", "steps")
#: Counted by the engine; only where the definition has a budget.
_COUNTED = frozenset({"attempts", "runtime", "steps"})
_FORWARD = frozenset({StepKind.STEP, StepKind.TX, StepKind.EACH})


def amounts_of(budget: Budget | None) -> Amounts:
    """Return the limits that a budget sets."""
    values = {} if budget is None else {name: getattr(budget, name) for name in NAMES}
    seconds = {name: v.total_seconds() if isinstance(v, timedelta) else v for name, v in values.items()}
    return {name: Decimal(str(value)) for name, value in seconds.items() if value is not None}


def budget_of(amounts: Amounts) -> Budget:
    """Return amounts as a budget; nothing is less than none."""
    left = {name: max(value, Decimal(0)) for name, value in amounts.items()}
    whole = {name: int(left[name]) for name in ("attempts", "tokens", "tool_calls", "steps") if name in left}
    runtime = timedelta(seconds=float(left["runtime"])) if "runtime" in left else None
    return Budget(runtime=runtime, cost=left.get("cost"), **whole)


def read(stored: Json) -> Amounts:
    """Read amounts as they are stored."""
    return {name: Decimal(str(value)) for name, value in stored.items() if name in NAMES} if stored else {}


def written(amounts: Amounts) -> Json:
    """Return amounts as they are stored: as texts, so that no digit is lost."""
    return {name: str(value) for name, value in amounts.items() if value}


def plus(*several: Amounts) -> Amounts:
    """Add amounts up."""
    names = {name for amounts in several for name in amounts}
    return {name: sum((amounts.get(name, Decimal(0)) for amounts in several), Decimal(0)) for name in names}


def words(amounts: Amounts) -> str:
    """Say amounts for people, in the order in which they are always named."""
    return ", ".join(
        f"{name} {amounts[name].normalize():f}{' s' if name == 'runtime' else ''}"
        for name in NAMES
        if name in amounts
    )


# --- definitions ----------------------------------------------------------------------------------------


def check(definition: Definition) -> None:
    """Refuse budgets that allow nothing, or that no try can have.

    Raises:
        DefinitionError: MP126.
    """
    _check(definition.title, definition.budget)
    for node in definition.nodes:
        _check(f"{definition.title}, step {node.name}", node.budget)
        if node.budget is not None and (node.budget.attempts, node.budget.steps) != (None, None):
            raise DefinitionError(
                "MP126",
                f"{definition.title}, step {node.name}: a step's budget counts for one try, which has no attempts and "
                "no steps. Say retry=Retry(attempts=...), or give the saga the budget.",
            )


def _check(place: str, budget: Budget | None) -> None:
    wrong = {name: value for name, value in amounts_of(budget).items() if value <= 0}
    if wrong:
        raise DefinitionError(
            "MP126", f"{place}: a budget of {words(wrong)} lets nothing begin. Leave it out, or say more."
        )


def policy(definition: Definition) -> list[Json]:
    """Return what of it belongs to the policy fingerprint; nothing where nothing was said."""
    own = {
        node.name: written(amounts_of(node.budget)) for node in definition.nodes if node.budget is not None
    }
    return [{"budget": written(amounts_of(definition.budget)), "budgets": own}] if counts(definition) else []


def counts(definition: Definition) -> bool:
    """Whether some budget is to be kept."""
    return definition.has_budgets


# --- what was spent -------------------------------------------------------------------------------------


def spent_by(run: Run) -> Amounts:
    """Return what a run has spent."""
    return plus(*(read(step.spent) for step in run.steps))


def limit_of(definition: Definition, run: Run) -> Amounts:
    """Return what a run may spend, with what persons have granted."""
    if definition.budget is None:
        return {}
    granted = plus(*(read(step.granted) for step in run.steps))
    return {
        name: value + granted.get(name, Decimal(0)) for name, value in amounts_of(definition.budget).items()
    }


def left_of_run(definition: Definition, run: Run) -> Amounts:
    """Return what is left of a run's budget; less than none where it is over."""
    if definition.budget is None:
        return {}
    spent = spent_by(run)
    return {name: value - spent.get(name, Decimal(0)) for name, value in limit_of(definition, run).items()}


def left_of_try(node: Node, step: Step) -> Amounts:
    """Return what a try that begins may spend, by the step's own budget."""
    if node.budget is None:
        return {}
    granted = read(step.granted)
    return {name: value + granted.get(name, Decimal(0)) for name, value in amounts_of(node.budget).items()}


def charged(definition: Definition, step: Step, fact: Fact, now: datetime) -> Step:
    """Return a row with what its try has spent until this fact; unchanged when nobody holds it under its fence."""
    if step.state not in HELD_STEP_STATES:
        return step
    match fact:
        case Succeeded() | TryFailed() | Probed() if fact.fence == step.fence:
            return _charge(definition, step, read(fact.spent), now)
        case Stale() if fact.fence == step.fence:
            ended = min(max(fact.lease_ended_at, step.started_at or now), now)
            return _charge(definition, step, _heard(step), ended)
        case Wake() if fact.generation == step.generation:
            return _charge(definition, step, _heard(step), now)
        case HandedBack() if (
            fact.fence == step.fence and step.kind in _FORWARD and step.state is StepState.RUNNING
        ):
            fewer = {"attempts": Decimal(-1)} | ({"steps": Decimal(-1)} if step.attempt == 1 else {})
            return _add(step, fewer) if step.spent and counts(definition) else step
    return step


def _heard(step: Step) -> Amounts:
    """Return what the try that is lost had said with a heartbeat."""
    said = step.spending or {}
    return read(said.get("spent")) if said.get("fence") == step.fence else {}


def _charge(definition: Definition, step: Step, spent: Amounts, until: datetime) -> Step:
    own = {name: value for name, value in spent.items() if name not in _COUNTED}
    if counts(definition) and step.started_at is not None:
        own["runtime"] = Decimal(str(max((until - step.started_at).total_seconds(), 0.0)))
    return _add(step, own) if own else step


def _add(step: Step, amounts: Amounts) -> Step:
    return replace(step, spent=written(plus(read(step.spent), amounts)))


# --- decisions ------------------------------------------------------------------------------------------


def begun(draft: Draft, step: Step) -> Step | None:
    """Count a try that begins, or put the step in front of a person when the run's budget does not allow it.

    Returns:
        The row with the try counted; None when it may not begin.
    """
    if not counts(draft.definition):
        return step
    first = "attempts" not in read(step.spent)
    one = {"attempts": Decimal(1)} | ({"steps": Decimal(1)} if first else {})
    over = _over(draft.definition, draft.run, one)
    if not over:
        return _add(step, one)
    _to_person(draft, step, over)
    return None


def _over(definition: Definition, run: Run, more: Amounts) -> str:
    """Say of what more would be spent than a run may, or ''."""
    spent, limit = plus(spent_by(run), more), limit_of(definition, run)
    over = {name: limit[name] for name in limit if spent.get(name, Decimal(0)) > limit[name]}
    if not over:
        return ""
    used = plus(spent_by(run), {name: Decimal(0) for name in over})
    return f"the run's budget of {words(over)} is used up: {words({name: used[name] for name in over})}"


def exceeded(draft: Draft, step: Step, over: str) -> Decision:
    """Put a step whose try spent too much in front of a person: it did something, so it may have taken effect."""
    draft.note("step.failed", step, code=BUDGET_EXCEEDED, message=over)
    if step.kind not in UNDOUBTED:
        step = replace(step, doubt=True, doubt_at=draft.now)
    _to_person(draft, step, over)
    return draft.decision()


def _to_person(draft: Draft, step: Step, over: str) -> None:
    held = draft.move(
        step, StepState.MANUAL_REQUIRED, wake_at=draft.reminder(), code=BUDGET_EXCEEDED, message=over
    )
    draft.note("step.manual_required", held, code=BUDGET_EXCEEDED, message=over)


def granted(draft: Draft, step: Step, more: Json) -> tuple[Step, str]:
    """Add what a person grants with a retry.

    Returns:
        The row, and why the retry is of no use, or ''.
    """
    amounts = read(more)
    added = replace(step, granted=written(plus(read(step.granted), amounts))) if amounts else step
    if not counts(draft.definition):
        return step, "this saga has no budget" if amounts else ""
    rows = tuple(added if row is step else row for row in draft.run.steps)
    over = _over(draft.definition, replace(draft.run, steps=rows), {"attempts": Decimal(1)})
    return added, f"{over}. Grant more with the retry: --budget NAME=AMOUNT" if over else ""
