"""What one change of a run counts for in the metrics.

Told once a change is stored. Nothing is counted where nobody collects.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from ..sagas.model import Decision, Run, Step
from ..schemas.states import FINAL_RUN_STATES, FINAL_STEP_STATES, Risk, RunState, StepState
from ..streams import measures
from ..streams.metrics import Meters, meters

_PERSONS = frozenset({RunState.MANUAL_REQUIRED, RunState.COMPENSATION_FAILED})
_PERSONS_STEP = frozenset({StepState.MANUAL_REQUIRED, StepState.COMPENSATION_FAILED})
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: What a row of the history counts for, whatever it says.
_BY_EVENT = {
    "step.started": measures.TRIES,
    "compensation.started": measures.TRIES,
    "step.retry_scheduled": measures.RETRIES,
    "compensation.retry_scheduled": measures.RETRIES,
    "step.unknown": measures.UNKNOWN,
}
_FAILED = frozenset({"step.failed", "compensation.failed"})
#: A run as its start has stored it.
_NEW = 1


def count_change(service: str, before: Run, decision: Decision) -> None:
    """Count what a stored decision has changed.

    Args:
        service: Whose run it is.
        before: The run as it was decided on.
        decision: What was stored.
    """
    found = meters()
    if found is None or decision.answer != "changed":
        return
    run = (service, before.saga)
    if before.version == _NEW:
        found.add(measures.STARTED, run)
    _count_history(found, run, decision)
    for step in decision.changed:
        if step.state in FINAL_STEP_STATES:
            _count_step(found, run, before, step)
    for settled in decision.settled:
        found.add(measures.RECONCILED, (*run, settled.decision))
    if decision.run.state is not before.state:
        _count_run(found, run, before, decision)


def _count_history(found: Meters, run: tuple[str, str], decision: Decision) -> None:
    for entry in decision.history:
        if (metric := _BY_EVENT.get(entry.event)) is not None:
            found.add(metric, (*run, entry.step or ""))
        elif entry.event in _FAILED:
            found.add(measures.ERRORS, (*run, entry.step or "", str(entry.data.get("code") or "")))
        elif entry.event == "run.compensating":
            found.add(measures.COMPENSATING, run)


def _count_step(found: Meters, run: tuple[str, str], before: Run, step: Step) -> None:
    old = before.step(step.name, step.iteration)
    if old is not None and old.state in FINAL_STEP_STATES:
        return
    found.add(measures.STEPS, (*run, step.name, step.state.value))
    began = step.first_at or (None if old is None else old.since)
    if began is not None and step.finished_at is not None:
        found.record(measures.STEP_DURATION, (*run, step.name), (step.finished_at - began).total_seconds())


def _count_run(found: Meters, run: tuple[str, str], before: Run, decision: Decision) -> None:
    after = decision.run
    graded = (*run, found.severities.get(after.saga, Risk.MEDIUM.value))
    if after.state in _PERSONS and before.state not in _PERSONS:
        found.add(measures.MANUAL, (*graded, after.state.value))
    if before.state in _PERSONS and after.state not in _PERSONS:
        since = min((step.since for step in before.steps if step.state in _PERSONS_STEP), default=None)
        now = max((step.since for step in decision.changed), default=after.finished_at)
        if since is not None and now is not None:
            found.record(measures.REPAIR, run, (now - since).total_seconds())
    if after.state in FINAL_RUN_STATES:
        found.add(measures.ENDED, (*graded, after.state.value))
        began = begun(after.id)
        if began is not None and after.finished_at is not None:
            seconds = (after.finished_at - began).total_seconds()
            found.record(measures.RUN_DURATION, (*run, after.state.value), seconds)


def begun(run_id: UUID) -> datetime | None:
    """Return when a run was started, as its id says (RFC 9562, version 7: 48 bits of milliseconds since 1970)."""
    return _EPOCH + timedelta(milliseconds=run_id.int >> 80) if run_id.version == 7 else None
