"""Runs and decisions as rows hold them: what is read becomes a run, what is written becomes JSON. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any
from uuid import UUID

import asyncpg

from ..sagas.model import Child, Decision, Fan, Run, Step
from ..schemas.ids import Ids
from ..schemas.states import Priority, RunState, StepKind, StepState

_STEP_PLAIN = (
    "name",
    "iteration",
    "undo_of",
    "queue",
    "attempt",
    "fence",
    "generation",
    "doubt",
    "result",
    "code",
    "message",
    "finish_no",
    "probes",
    "nudges",
    "signal",
    "signal_version",
    "progress",
    "asked",
)
_STEP_SPENT = ("spent", "granted", "spending")
_STEP_TIMES = ("wake_at", "doubt_at", "first_at", "started_at", "finished_at", "limited_until")
_RUN_PLAIN = (
    "id",
    "tenant",
    "saga",
    "key",
    "definition",
    "shape",
    "policy",
    "input_version",
    "correlation_id",
    "code",
    "cause",
    "version",
    "history_n",
    "finish_n",
    "wake_at",
    "deadline_at",
    "active_for",
    "active_since",
    "finished_at",
    "traceparent",
    "resource",
    "holds",
    "no_undo",
    "watched",
    "queued_since",
    "moved_at",
)


_SHORT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Loaded:
    """A run as it was read.

    Attributes:
        now: The database's clock at that moment.
        links: Trace contexts of matched signals by name and iteration of the wait.
    """

    run: Run
    service: str
    now: datetime
    links: Mapping[tuple[str, str], str]


def _instant(value: str | None) -> datetime | None:
    return None if value is None else datetime.fromisoformat(value)


def _step(row: Mapping[str, Any]) -> Step:
    fields: dict[str, Any] = {name: row[name] for name in _STEP_PLAIN + _STEP_SPENT}
    fields.update({name: _instant(row[name]) for name in _STEP_TIMES})
    return Step(
        kind=StepKind(row["kind"]),
        state=StepState(row["state"]),
        since=datetime.fromisoformat(row["since"]),
        worker=None if row["worker"] is None else UUID(row["worker"]),
        child=_child(row.get("child")),
        fan=None if row.get("fan") is None else Fan(**row["fan"]),
        **fields,
    )


def _child(found: Mapping[str, str | None] | None) -> Child | None:
    return None if found is None else Child(**{name: value or "" for name, value in found.items()})


def loaded(row: asyncpg.Record) -> Loaded:
    """Turn a row of load_run into a run."""
    steps = json.loads(row["steps"]) if row["steps"] is not None else []
    plain = {name: row[name] for name in _RUN_PLAIN}
    run = Run(
        input=json.loads(row["input"]),
        state=RunState(row["state"]),
        priority=Priority(row["priority"]),
        steps=tuple(_step(step) for step in steps),
        **plain,
    )
    links = {
        (s["name"], s["iteration"]): s["signal_traceparent"] for s in steps if s.get("signal_traceparent")
    }
    return Loaded(run=run, service=row["service"], now=row["now"], links=links)


@lru_cache(maxsize=1024)  # a decision writes the same instant several times
def _text(value: datetime | None) -> str | None:
    return None if value is None else value.isoformat()


def _step_json(step: Step, n: int) -> dict[str, Any]:
    row = {
        "name": step.name,
        "iteration": step.iteration,
        "n": n,
        "kind": step.kind,
        "state": step.state,
        "undo_of": step.undo_of,
        "queue": step.queue,
        "attempt": step.attempt,
        "fence": step.fence,
        "generation": step.generation,
        "worker": None if step.worker is None else str(step.worker),
        "wake_at": _text(step.wake_at),
        "doubt": step.doubt,
        "doubt_at": _text(step.doubt_at),
        "result": step.result,
        "code": step.code,
        "message": step.message,
        "finish_no": step.finish_no,
        "probes": step.probes,
        "nudges": step.nudges,
        "since": _text(step.since),
        "first_at": _text(step.first_at),
        "started_at": _text(step.started_at),
        "finished_at": _text(step.finished_at),
        "limited_until": _text(step.limited_until),
        "spent": step.spent,
        "granted": step.granted,
    }
    if step.asked is not None:
        row["asked"] = step.asked
    return row


def new_json(run: Run, service: str) -> dict[str, Any]:
    """Return what a run has from its beginning and no decision changes."""
    return {
        "tenant": run.tenant,
        "service": service,
        "saga": run.saga,
        "key": run.key,
        "definition": run.definition,
        "shape": run.shape,
        "policy": run.policy,
        "input": run.input,
        "correlation_id": run.correlation_id,
        "traceparent": run.traceparent,
        "deadline_at": _text(run.deadline_at),
        "resource": run.resource,
        "priority": run.priority,
        "input_version": run.input_version,
        "watched": run.watched,
    }


def history_json(run: Run, decision: Decision) -> list[dict[str, Any]]:
    """Return the history rows of a decision on a run as it was."""
    first = run.history_n + 1
    return [
        {
            "n": n,
            "event": e.event,
            "step": e.step,
            "iteration": e.iteration,
            "attempt": e.attempt,
            "data": dict(e.data),
        }
        for n, e in enumerate(decision.history, first)
    ]


def steps_json(decision: Decision) -> list[dict[str, Any]]:
    """Return the changed step rows of a decision."""
    if not decision.changed:
        return []
    place = {(step.name, step.iteration): n for n, step in enumerate(decision.run.steps)}
    return [_step_json(step, place[step.name, step.iteration]) for step in decision.changed]


def settled_json(decision: Decision, ids: Ids) -> list[dict[str, Any]]:
    """Return the reconciliation rows of a decision, under new ids."""
    return [
        {
            "id": str(ids.new()),
            "step": s.step,
            "iteration": s.iteration,
            "before": s.before,
            "evidence": dict(s.evidence),
            "decision": s.decision,
            "after": s.after,
            "reason": s.reason,
        }
        for s in decision.settled
    ]


def dump(value: Any) -> str:
    """Return a value as JSON, as short as it can be."""
    return _SHORT.encode(value)


def is_empty(decision: Decision) -> bool:
    """Whether there is nothing to store; a run that is only to be looked at later has changed too."""
    return decision.answer != "changed" and not decision.history
