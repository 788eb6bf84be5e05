"""Which runs can move to another version of their saga, and what they are there. Pure: it changes nothing by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from ..schemas.errors import MilepostError
from ..schemas.states import FINAL_STEP_STATES, RunState, StepKind, StepState
from . import codec, planting, retry
from .definition import Definition, Node
from .model import Json, Limits, Run, Step, Work
from .saga import Saga
from .versions import Migration

_FORWARD = frozenset({RunState.PENDING, RunState.RUNNING, RunState.WAITING, RunState.MANUAL_REQUIRED})
_KINDS = frozenset({StepKind.STEP, StepKind.TX, StepKind.WAIT})
_RESTING = frozenset(
    {StepState.PENDING, StepState.RETRY_PENDING, StepState.WAITING, StepState.MANUAL_REQUIRED}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A run as it is to be.

    Attributes:
        run: With its new definition, input and step rows.
        names: Old name of each of its rows, in order, to the new one.
        work: What is to be announced, because it is done by another function now.
    """

    run: Run
    names: Mapping[str, str]
    work: tuple[Work, ...]


def plan(migration: Migration, new: Definition, run: Run, now: datetime, limits: Limits) -> Move | str:
    """Move a run, or say why it stays.

    Args:
        migration: From the version that the run is of.
        new: The version it is to be of.
        now: The database's clock.
    """
    old = migration.old
    if run.definition != old.version or run.shape not in {"", old.shape}:
        return f"it is not pinned to {old.title} as this application has it"
    if run.state not in _FORWARD or run.cause is not None:
        return f"it is {run.state} and stopping: what was done is undone by the version that did it"
    if run.steps and any(planting.pinned(definition.flow) is not None for definition in (old, new)):
        return "only runs of flows without branches, choices and loops can move once they have begun"
    problem = next((found for step in run.steps if (found := _fixed(migration, new, step))), "")
    if not problem:
        problem = _in_order(migration, new, run)
    if problem:
        return problem
    value = _new_input(migration, new, run)
    if isinstance(value, str):
        return value
    rows = tuple(_moved(migration, new, step, now, limits) for step in run.steps)
    moved = replace(
        run,
        definition=new.version,
        shape=new.shape,
        policy=new.policy,
        input=value[0],
        input_version=new.input_version,
        history_n=run.history_n + 1,
        steps=rows,
    )
    work = tuple(
        Work(step.name, "work", step.queue, step.iteration)
        for step in rows
        if step.state is StepState.PENDING
    )
    return Move(run=moved, names={step.name: migration.steps[step.name] for step in run.steps}, work=work)


def _fixed(migration: Migration, new: Definition, step: Step) -> str:
    """Say what keeps a row where it is, or ''."""
    if step.kind not in _KINDS or step.iteration:
        return f"it has come to {step.name}, and only steps and waits outside of loops can move"
    final = step.state in FINAL_STEP_STATES
    problem = "" if final else _unrest(step)
    if problem:
        return problem
    name = migration.steps.get(step.name)
    if name is None:
        return f"it has come to {step.name}, which has no place in {new.title}"
    if name != step.name and not final and step.attempt and step.kind is not StepKind.WAIT:
        return f"{step.name} has been tried under its operation key, which would be another under the name {name}"
    return _unfit(migration.old.node(step.name), new.node(name), step)


def _unrest(step: Step) -> str:
    """Say why nobody may touch a row that is not final, or ''."""
    if step.state not in _RESTING:
        return f"{step.name} is {step.state}: let it come to an end first"
    if step.doubt:
        return f"nobody knows whether {step.name} took effect: settle it first"
    if step.signal is not None:
        return f"the event that {step.name} waited for has just come: it goes on with it first"
    return ""


def _unfit(old: Node | None, new: Node | None, step: Step) -> str:
    """Say why what a row holds does not fit its new node, or ''."""
    assert old is not None and new is not None, "the map was checked when it was declared"
    if step.state is not StepState.SUCCEEDED:
        return ""
    if old.undo is not None and new.undo is None:
        return f"{step.name} could no more be undone: {new.name} has no undo"
    if new.result is None:
        return "" if step.result is None else f"{step.name} has a result, and {new.name} has none"
    try:
        new.decode(step.result)
    except Exception as error:  # a user's validator may raise anything; the values are named nowhere
        return f"the result of {step.name} is no {new.result.__name__} ({type(error).__name__})"
    return ""


def _in_order(migration: Migration, new: Definition, run: Run) -> str:
    """Say which node of the new flow the run would have passed by, or would come to twice; or ''."""
    flow = {node.name: place for place, node in enumerate(new.nodes)}
    places = {step.name: flow[migration.steps[step.name]] for step in run.steps}
    furthest = max(places.values(), default=-1)
    reached = set(places.values())
    missing = [node.name for place, node in enumerate(new.nodes[:furthest]) if place not in reached]
    if missing:
        return f"it is past {missing[0]}, which is new in {new.title} and would never be done"
    behind = [s.name for s in run.steps if s.state not in FINAL_STEP_STATES and places[s.name] != furthest]
    if behind:
        return f"{behind[0]} is open, and {new.title} puts it before something that is done already"
    return ""


def _new_input(migration: Migration, new: Definition, run: Run) -> tuple[Json, bytes] | str:
    """Return the input as the new version stores it and its hash, or why there is none."""
    try:
        value = migration.input(migration.old.decode_input(run.input, run.input_version))
        encoded, key = new.encode_input(value), new.key_of(value)
    except MilepostError as error:
        return f"input= made no input: {error}"
    except Exception as error:  # the user's code may raise anything
        return f"input= raised {type(error).__name__}"
    return encoded if key == run.key else f"its business key would change, to {key!r}"


def _moved(migration: Migration, new: Definition, step: Step, now: datetime, limits: Limits) -> Step:
    name = migration.steps[step.name]
    node = new.node(name)
    assert node is not None
    wake_at = retry.later(now, limits.nudge) if step.state is StepState.PENDING else step.wake_at
    return replace(step, name=name, queue=node.queue, wake_at=wake_at)


def same_intent(saga: Saga[Any], stored: Json, version: int, input_version: int, digest: bytes) -> bool:
    """Whether a start asks for the run that is there, although its input was stored in an older form.

    Args:
        saga: What is started.
        stored: The run's input.
        version: The run's version of the saga.
        input_version: And of its input.
        digest: Of the input that is started with.
    """
    definition = saga.definition
    try:
        if version == saga.version:
            value = definition.decode_input(stored, input_version)
        else:
            move = saga.past.migrations[version]
            value = move.input(move.old.decode_input(stored, input_version))
        return codec.digest(codec.encode(definition.input, value, definition.title)) == digest
    except Exception:  # what cannot be read as such an input is not that input
        return False
