"""What a run's page is made of: steps, timeline and requests, masked for who may not read payloads."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

from ...recovery.permissions import Act, Actor, Permission, permission
from ...schemas.states import Risk
from ..listing import first_line, without_code
from ..locks import LockLine
from ..model import HistoryLine, RunDetail, StepLine, deltas
from .choices import of_step
from .masking import masked
from .run_rows import Event, RequestView, StepView
from .worklist import read_question

_SAID = frozenset({"message", "by", "reason"})
_TONES = {
    "completed": "done",
    "started": "live",
    "failed": "failed",
    "unknown": "doubt",
    "probing": "doubt",
    "asked": "person",
    "manual_required": "person",
    "compensating": "undone",
    "compensated": "undone",
}
#: What a row of the history says that is no payload.
_PLAIN = frozenset(
    {
        "code",
        "verdict",
        "at",
        "until",
        "by",
        "cause",
        "probe",
        "version",
        "attempts",
        "undo_of",
        "lock",
        "limit",
    }
    | {"in_part", "fence", "state", "doubt", "did_not_happen", "type", "timeout", "on_timeout", "key"}
)


def request_view(row: Any) -> RequestView:
    """Make a request of its row."""
    step = f"{row['step']}#{row['iteration']}" if row["step"] and row["iteration"] else row["step"]
    names = ("id", "what", "by", "reason", "at", "state", "answer", "answered_at")
    return RequestView(step=step, **{name: row[name] for name in names})


def readable(actor: Actor, run: RunDetail) -> bool:
    """Say whether whoever reads may see the run's payloads."""
    found = permission(actor, Act.READ_PAYLOAD, tenant=run.tenant, saga=run.saga)
    return found is not Permission.FORBIDDEN


def read_json(text: str | None, *, readable: bool) -> Any:
    """Read JSON of a row; masked where payloads may not be seen."""
    return None if text is None else masked(json.loads(text), readable=readable)


def read_row(row: Any, readable: bool, *columns: str) -> dict[str, Any]:
    """Return a row with some of its columns read from JSON."""
    return dict(row) | {name: read_json(row[name], readable=readable) for name in columns}


def lock_view(lock: LockLine | None) -> dict[str, object] | None:
    """Return the lock that a run has or waits for, with its words."""
    if lock is None:
        return None
    return {**lock.item, "words": lock.holds if lock.held else lock.waits}


def step_view(
    actor: Actor,
    run: RunDetail,
    step: StepLine,
    row: Any,
    severity: Risk,
    *,
    groups: Collection[str],
    readable: bool,
) -> StepView:
    """Make a step of its row."""
    asked = None if row["asked"] is None else json.loads(row["asked"])
    is_open = asked is not None and asked.get("open")
    question = (
        read_question(row["asked"], step.wake_at if step.state == "WAITING" else None) if is_open else None
    )
    if question is not None:
        question = question.model_copy(update={"params": masked(question.params, readable=readable)})
    names = (
        *("label", "name", "iteration", "undo_of", "queue", "probes", "doubt", "code", "worker", "wake_at"),
        *("since", "started_at", "finished_at", "items"),
    )
    return StepView(
        **{name: getattr(step, name) for name in names},
        kind=step.kind.value,
        state=step.state.value,
        tries=step.attempt,
        message=without_code(step.code, step.message or "") if readable else "",
        fence=row["fence"],
        generation=asked["generation"] if is_open and asked is not None else None,
        hash=asked["hash"] if is_open and asked is not None else None,
        result=read_json(row["result"], readable=readable),
        progress=read_json(row["progress"], readable=readable),
        spent=read_json(row["spent"], readable=True),
        granted=read_json(row["granted"], readable=True),
        limited_until=row["limited_until"],
        question=question,
        choices=of_step(actor, run, step, question=question, severity=severity, groups=groups),
    )


def timeline(history: Sequence[HistoryLine], *, readable: bool) -> list[Event]:
    """Make the timeline of a run's history."""
    spans = deltas(history) if history else []
    return [
        Event(
            n=line.n,
            at=line.at,
            later=later,
            event=line.event,
            step=line.label,
            tries=line.attempt,
            by=line.data.get("by") if line.event.startswith("act.") else None,
            reason=line.data.get("reason"),
            message=_said(line) if readable else "",
            data={
                name: value if name in _PLAIN else masked(value, readable=readable)
                for name, value in line.data.items()
                if value is not None
                and (name not in _SAID or not line.event.startswith("act."))
                and name not in {"message", "reason", "hash"}
            },
            tone=_TONES.get(line.event.rpartition(".")[2], "person" if line.event.startswith("act.") else ""),
        )
        for line, later in zip(history, spans, strict=True)
    ]


def _said(line: HistoryLine) -> str:
    return first_line(without_code(line.data.get("code"), str(line.data.get("message") or "")))
