"""Recorded histories: facts in order with the clock and the dice, and what came of them.

`python -m tests.support.histories` records those that are missing for the sagas of the examples; one that is there is
never written again, for it says what a released definition does. `replayed` says what the present code makes of one.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

from milepost import Context, FanOut, Saga
from milepost.sagas import facts
from milepost.sagas.decide import decide
from milepost.sagas.definition import Definition
from milepost.sagas.model import Decision, Fan, Limits, Run, Step
from milepost.schemas.states import FINAL_RUN_STATES, FINAL_STEP_STATES, RunState, StepKind, StepState
from pydantic import BaseModel, TypeAdapter

from tests.support.sagas import RUN_ID, WORKER, Order, add_step, new_saga

FOLDER = Path(__file__).parents[1] / "unit" / "sagas" / "histories"
BEGAN = datetime(2026, 3, 1, 12, tzinfo=UTC)
DICE = 0.5
LIMITS = Limits()
#: What goes wrong in a recording: nothing, or the first try of each step in one of these ways.
FAULTS = ("fatal", "retry", "lost", "unknown", "timeout")
#: How two items end: one of each, or, where that is what goes wrong, both badly.
ONE_FAILED, BOTH_FAILED = [2, 2, 0, 1, 1], [2, 2, 0, 0, 2]


def examples() -> Iterator[Definition]:
    """Return the definitions of the examples."""
    from milepost.examples.notify.saga import notification
    from milepost.examples.report.saga import report
    from milepost.examples.shop.saga import order

    for saga in (order, notification, report, _mailing()):
        yield saga.definition


def _mailing() -> Saga[Order]:
    """A fan-out between two steps; no example has that."""
    letter, saga = new_saga("letter"), new_saga("mailing")
    letter.flow(add_step(letter, "send"))
    before, after = add_step(saga, "prepare", undo=True), add_step(saga, "report")

    async def letters(ctx: Context[Order]) -> AsyncIterator[Order]:
        yield ctx.input

    async def recall(ctx: Context[Order], done: FanOut) -> None: ...

    spread = saga.each("spread", letter, items=letters, min_success=0.5)
    spread.undo(recall)
    saga.flow(before, spread, after)
    return saga


# --- facts as JSON ----------------------------------------------------------------------------------------


def written(fact: facts.Fact) -> dict[str, Any]:
    """Return a fact as JSON, with its class's name."""
    made: dict[str, Any] = {"fact": type(fact).__name__} | _plain(fact)
    return made


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        named = {name: _plain(found) for name, found in fields.items() if found is not None}
        return named | ({"answer_of": type(fields["answer"]).__name__} if "answer" in fields else {})
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime | timedelta | UUID):
        return TypeAdapter(type(value)).dump_python(value, mode="json")
    return value


def read(found: Mapping[str, Any]) -> facts.Fact:
    """Read a fact back."""
    values = dict(found)
    kind = getattr(facts, values.pop("fact"))
    if "answer_of" in values:
        answer = getattr(facts, values.pop("answer_of"))
        values["answer"] = answer(**_typed(answer, values["answer"]))
    made: facts.Fact = kind(**_typed(kind, values))
    return made


def _typed(kind: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {name: _as(hints[name], value) for name, value in values.items()}


def _as(hint: Any, value: Any) -> Any:
    plain = (datetime, timedelta, UUID)
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    wanted = next((kind for kind in kinds if kind in plain), None)
    return (
        value if wanted is None or not isinstance(value, str) else TypeAdapter(wanted).validate_python(value)
    )


# --- what came of them ------------------------------------------------------------------------------------


@dataclasses.dataclass
class Play:
    """A run that is fed with facts."""

    definition: Definition
    given: Any
    run: Run = dataclasses.field(init=False)
    events: list[str] = dataclasses.field(default_factory=list)
    answers: list[str] = dataclasses.field(default_factory=list)
    opens: list[str] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        self.run = Run(
            id=RUN_ID,
            tenant="",
            saga=self.definition.name,
            key="k",
            definition=self.definition.version,
            shape=self.definition.shape,
            input=self.given,
            state=RunState.PENDING,
            correlation_id=str(RUN_ID),
        )

    def feed(
        self, fact: facts.Fact, now: datetime, dice: float, fan: Sequence[int] | None = None
    ) -> Decision:
        """Decide, and keep what came of it; `fan` says how the items stand of the row that the fact is about."""
        if fan is not None and isinstance(fact, facts.ChildSeen):
            seen = self.run.step(fact.step, fact.iteration)
            rows = tuple(
                dataclasses.replace(row, fan=Fan(row.attempt, *fan)) if row is seen else row
                for row in self.run.steps
            )
            self.run = dataclasses.replace(self.run, steps=rows)
        decision = decide(self.definition, self.run, fact, now, dice=dice, limits=LIMITS)
        self.run = dataclasses.replace(decision.run, version=self.run.version + 1)
        self.events += [f"{entry.step or 'run'} {entry.event}" for entry in decision.history]
        self.answers.append(decision.answer)
        self.opens += [f"{wait.step} {wait.type} {wait.key}" for wait in decision.opens]
        return decision

    def outcome(self) -> dict[str, Any]:
        """Return all that must stay as it is."""
        return {
            "state": self.run.state.value,
            "code": self.run.code,
            "cause": self.run.cause,
            "steps": [
                [
                    step.name,
                    step.iteration,
                    step.state.value,
                    step.code,
                    step.attempt,
                    step.finish_no,
                    step.result,
                ]
                for step in self.run.steps
            ],
            "waits": self.opens,
            "answers": self.answers,
            "history": self.events,
        }


def replayed(definition: Definition, history: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the present code makes of a recorded history."""
    play = Play(definition, history["input"])
    for fact in history["facts"]:
        play.feed(read(fact["what"]), datetime.fromisoformat(fact["now"]), fact["dice"], fact.get("fan"))
    return play.outcome()


# --- recording --------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Recorder:
    """Brings a run to its end, one step of it going wrong, and writes down every fact.

    Args:
        fault: One of FAULTS; '' for none.
        at: Name of the step that it befalls.
    """

    definition: Definition
    fault: str
    at: str
    now: datetime = BEGAN
    told: list[dict[str, Any]] = dataclasses.field(default_factory=list)

    def record(self) -> dict[str, Any]:
        """Return the history."""
        self.play = Play(self.definition, sample(self.definition.oldest_input))
        self._feed(facts.Start())
        for _ in range(500):
            live = [step for step in self.play.run.steps if step.state not in FINAL_STEP_STATES]
            persons = all(step.state is StepState.MANUAL_REQUIRED for step in live)
            if self.play.run.state in FINAL_RUN_STATES or persons:
                break
            for step in live:
                self._next(step)
                break
        return {
            "saga": self.definition.name,
            "version": self.definition.version,
            "shape": self.definition.shape,
            "fault": f"{self.fault} {self.at}".strip(),
            "input": self.play.given,
            "facts": self.told,
            "outcome": self.play.outcome(),
        }

    def _feed(self, fact: facts.Fact, fan: Sequence[int] | None = None) -> None:
        self.now += timedelta(seconds=1)
        more = {} if fan is None else {"fan": fan}
        self.told.append({"now": self.now.isoformat(), "dice": DICE, "what": written(fact)} | more)
        self.play.feed(fact, self.now, DICE, fan)

    def _next(self, step: Step) -> None:
        node = self.definition.node(step.name) or self.definition.undone_by(step.name)
        assert node is not None, step.name
        where = {"iteration": step.iteration}
        match step.state:
            case StepState.PENDING | StepState.COMPENSATION_PENDING | StepState.UNKNOWN:
                self._feed(facts.Claim(step.name, WORKER, **where))
            case StepState.RUNNING:
                self._run(step, None if node.result is None else sample(node.result))
            case StepState.COMPENSATING:
                self._feed(facts.Succeeded(step.name, step.fence, None, step.iteration))
            case StepState.RECONCILING:
                result = None if node.result is None else sample(node.result)
                answer = facts.ProbeFound(result) if self.fault == "lost" else facts.ProbeAbsent()
                self._feed(facts.Probed(step.name, step.fence, answer, **where))
            case StepState.WAITING if self._strikes(step) and step.attempt < 3:
                self.now = step.wake_at or self.now
                self._feed(facts.Wake(step.name, step.generation, **where))
            case StepState.WAITING if node.each is not None:
                ends = BOTH_FAILED if (self.fault, self.at) == ("items", step.name) else ONE_FAILED
                self._feed(facts.ChildSeen(step.name, **where), ends)
            case StepState.WAITING:
                self._feed(facts.Signalled(step.name, step.generation, sample(node.result), **where))
            case _:
                self.now = step.wake_at or self.now
                self._feed(facts.Wake(step.name, step.generation, **where))

    def _strikes(self, step: Step) -> bool:
        return step.name == self.at and self.fault == "timeout"

    def _run(self, step: Step, result: Any) -> None:
        if step.name != self.at or step.attempt > 1 or self.fault in {"timeout", "items"}:
            items = 2 if step.kind is StepKind.EACH else 0
            self._feed(facts.Succeeded(step.name, step.fence, result, step.iteration, items=items))
        elif self.fault == "lost":
            self._feed(facts.Stale(step.name, step.fence, self.now, iteration=step.iteration))
        else:
            verdict: Any = self.fault
            self._feed(
                facts.TryFailed(
                    step.name, step.fence, verdict, "BROKEN", "it broke", iteration=step.iteration
                )
            )


def sample(model: type[BaseModel] | None) -> Any:
    """Return JSON that the class takes, made from its schema alone.

    Raises:
        pydantic.ValidationError: The class wants more than its schema says.
    """
    if model is None:
        return None
    schema = TypeAdapter(model).json_schema(mode="validation")
    made = _made(schema, schema.get("$defs", {}))
    model.model_validate(made)
    return made


_TEXTS = {
    "date-time": "2026-03-01T12:00:00Z",
    "date": "2026-03-01",
    "uuid": "01970000-0000-7000-8000-00000000000c",
    "uri": "https://example.org/x",
    "duration": "PT1S",
}
_PLAIN: Mapping[str, Any] = {"integer": 1, "number": 1, "boolean": True, "null": None, "array": []}


def _made(schema: Mapping[str, Any], known: Mapping[str, Any]) -> Any:
    if "$ref" in schema:
        return _made(known[schema["$ref"].rpartition("/")[2]], known)
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return _made(schema[key][0], known)
    if "const" in schema or "enum" in schema:
        return schema.get("const", schema.get("enum", [None])[0])
    if schema.get("type") == "object":
        parts = schema.get("properties", {})
        return {name: _made(parts[name], known) for name in schema.get("required", [])}
    if schema.get("pattern") == "^[0-9a-f]{64}$":
        return "0" * 64  # a SHA-256
    if schema.get("type") == "string":
        return _TEXTS.get(schema.get("format", ""), "x" * max(1, schema.get("minLength", 1)))
    return schema.get("minimum", _PLAIN.get(schema.get("type", "null")))


def recordings(definition: Definition) -> Iterator[tuple[str, Recorder]]:
    """Return every recording of a definition with its file's name."""
    head = f"{definition.name}-v{definition.version}"
    yield f"{head}.json", Recorder(definition, "", "")
    for node in definition.nodes:
        faults = ("timeout",) if node.kind is StepKind.WAIT else FAULTS[:-1]
        for fault in (*faults, "items") if node.each is not None else faults:
            yield f"{head}-{node.name}-{fault}.json", Recorder(definition, fault, node.name)


def main() -> None:
    """Record what is missing."""
    FOLDER.mkdir(exist_ok=True)
    for definition in examples():
        for name, recorder in recordings(definition):
            path = FOLDER / name
            if not path.exists():
                path.write_text(json.dumps(recorder.record(), indent=1, ensure_ascii=False) + "\n")
                print(f"recorded {name}")


if __name__ == "__main__":
    main()
