"""`milepost runs list` and `milepost runs show`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from rich.text import Text

from ..schemas.states import FINAL_RUN_STATES, HELD_STEP_STATES, StepState
from . import acts
from . import looked as looked_at
from .asked import print_requests, requests_item
from .listing import Entry, first_line, without_code
from .manifest import print_manifest, read_manifest
from .model import HistoryLine, Plan, RunDetail, RunLine, StepLine, deltas, minute, run_reference, situation
from .options import Globals
from .output import Output, clean, column, span, state_text
from .store import Wanted, reading

#: Fields of history rows that hold an instant.
_INSTANTS = frozenset({"at", "until"})


async def list_runs(given: Globals, filters: Wanted) -> None:
    """Print runs, the youngest first."""
    async with reading(given.database_url()) as store:
        runs = await store.runs(filters)
        known = await store.sagas() if filters.saga and not runs else []
    out = given.out
    for run in runs if out.as_json else ():
        out.item(**_list_item(run))
    if not runs:
        out.say(_nothing(filters, known))
        return
    out.table(
        [
            column("run"),
            column("state"),
            column("at"),
            column("since", right=True),
            column("code"),
            column("tenant"),
        ],
        [_list_row(run) for run in runs],
    )
    if len(runs) == filters.limit:
        out.note(f"the youngest {filters.limit}; --limit shows more")


def _nothing(filters: Wanted, sagas: Sequence[str]) -> str:
    """Say that there are no runs; where no saga has the name that was asked for, which sagas have runs."""
    if filters == Wanted(limit=filters.limit):
        return "no runs yet"
    if filters.saga and filters.saga not in sagas:
        others = f"there are runs of: {', '.join(sagas)}" if sagas else "there are no runs yet"
        return f"no runs of a saga {filters.saga}; {others}"
    return "no such runs"


def _list_item(run: RunLine) -> dict[str, object]:
    return {
        "run": run.run,
        "id": run.id,
        "tenant": run.tenant,
        "service": run.service,
        "state": run.state,
        "step": run.step,
        "step_state": run.step_state,
        "code": run.code,
        "cause": run.cause,
        "correlation": run.correlation_id,
        "created_at": run.created_at,
        "finished_at": run.finished_at,
        "since": run.since,
    }


def _list_row(run: RunLine) -> list[str | Text]:
    at = run.step or ""
    if run.step and run.step_state and str(run.step_state) != str(run.state):
        at = f"{run.step} {run.step_state}"
    code = run.code or run.cause or ""
    return [run.run, state_text(run.state), at, span(run.now - run.since), code, run.tenant]


async def show_run(given: Globals, reference: str, *, history: bool, manifest: bool = False) -> None:
    """Print one run: where it stands, its steps, and with `history` its timeline."""
    named = run_reference(reference)
    async with reading(given.database_url()) as store:
        run = await store.run(await store.find(named), history=history)
        asked = await store.fetch(acts.Sql.requests_of, run.id) if history else []
        looked = await store.fetch(looked_at.Sql.looked_at, run.id) if history else []
        plan = _plan(given, run)
        found = await read_manifest(store, run, plan) if manifest else None
    out = given.out
    if out.as_json:
        requests = (
            {"requests": requests_item(asked), "looked": looked_at.looked_item(looked)} if history else {}
        )
        more = {} if found is None else {"manifest": found.item}
        out.item(**_show_item(run, plan, history=history), **requests, **more)
        return
    out.say(_headline(run, plan, out.width))
    if limits := time_limits(run, plan):
        out.say(f"  {limits}")
    if found is None:
        _steps(out, run, plan)
    else:
        print_manifest(out, found)
    if history:
        _timeline(out, run.history)
        looked_at.print_looked(out, looked)
        print_requests(out, asked)


def _plan(given: Globals, run: RunDetail) -> Plan:
    """Ask the app for what only the definition knows; without an app, or a broken one, nothing."""
    from .application import optional_app, plan_of

    service = optional_app(given)
    return plan_of(service, run.saga, run.definition) if service is not None else Plan()


def _headline(run: RunDetail, plan: Plan, width: int) -> Text:
    main = Text.assemble(
        (clean(run.run), "bold"), "  ", state_text(run.state), "  ", clean(situation(run, plan, span))
    )
    more = [f"trace {run.trace_id[:8]}…"] if run.trace_id else []
    more += [clean(f"tenant {run.tenant}")] if run.tenant else []
    more += [clean(run.lock.holds)] if run.lock is not None and run.lock.held else []
    beside = "".join(f"   {text}" for text in more)
    if main.cell_len + len(beside) > width:
        beside = "\n  " + "   ".join(more)
    return Text.assemble(main, (beside if more else "", "dim"))


def time_limits(run: RunDetail, plan: Plan) -> str:
    """Say when the run has to stop, and how much of its active time it has used."""
    said = []
    if run.deadline_at is not None:
        left = run.deadline_at - run.now
        live = run.state not in FINAL_RUN_STATES
        away = f" (in {span(left)})" if left > timedelta(0) else f" ({span(-left)} ago)"
        said.append(f"deadline {minute(run.deadline_at)}{away if live else ''}")
    if plan.active_timeout is not None or run.active_for:
        of = "" if plan.active_timeout is None else f" of {span(plan.active_timeout)}"
        said.append(f"active for {span(run.active_for)}{of}")
    return ", ".join(said)


def _steps(out: Output, run: RunDetail, plan: Plan) -> None:
    ahead = plan.not_reached(run)
    if not run.steps and not ahead:
        out.say("  no step has begun")
        return
    entries = [_step_entry(step, run.now) for step in run.steps]
    empty = [Text()] * 5
    entries += [Entry([Text(f"  {clean(name)}"), Text("not reached", style="dim"), *empty]) for name in ahead]
    out.listing(
        [
            column("  step"),
            column("state"),
            column("tries", right=True),
            column("probed"),
            column("since", right=True),
            column("worker"),
            column("note"),
        ],
        entries,
    )


def _step_entry(step: StepLine, now: datetime) -> Entry:
    probed = f"{step.probes}x" if step.probes else "yes" if step.probed else ""
    tries = str(step.attempt) if step.attempt else ""
    note, message = _note(step)
    cells = (tries, probed, span(now - step.since), clean(step.worker or ""), clean(note))
    state = state_text(step.state, step.state_words)
    return Entry([Text(f"  {clean(step.label)}"), state, *map(Text, cells)], clean(message))


def _note(step: StepLine) -> tuple[str, str]:
    """Say what a step undoes and what went wrong, with this try or with the one before; and the message to it."""
    undone = f"undoes {step.undo_of}" if step.undo_of else _items(step)
    if step.state in {StepState.SUCCEEDED, StepState.COMPENSATED}:
        return undone, ""
    code, message = step.code or "", first_line(without_code(step.code, step.message or ""))
    if step.state in HELD_STEP_STATES and (code or message):
        code = f"last try: {code}".removesuffix(": ")
    return "; ".join(part for part in (undone, code) if part), message


def _items(step: StepLine) -> str:
    """Say how the items of a fan-out stand."""
    if step.items is None:
        return ""
    total, succeeded, failed, started = (
        step.items[name] for name in ("total", "succeeded", "failed", "started")
    )
    more = [f"{failed} failed"] if failed else []
    more += [f"{started} under way"] if started else []
    return ", ".join([f"{succeeded + failed}/{total} done", *more])


def _timeline(out: Output, history: Sequence[HistoryLine]) -> None:
    out.say("")
    if not history:
        out.say("  no history is kept of this run")
        return
    entries: list[Entry] = []
    day = None
    for entry, delta in zip(history, deltas(history), strict=True):
        at = entry.at.astimezone(UTC)
        if at.date() != day:
            day = at.date()
            entries.append(Entry([Text(f"  {day}", style="bold"), *([Text()] * 5)]))
        entries.append(_history_entry(entry, at, delta))
    out.listing(
        [
            column("  UTC"),
            column("later", right=True),
            column("event"),
            column("step"),
            column("try", right=True),
            column("data"),
        ],
        entries,
    )


def _word(value: object) -> str:
    """Write a value of a history row: a single word as it is, everything else as JSON."""
    if isinstance(value, str) and value and not any(letter.isspace() or letter in "\"'" for letter in value):
        return value
    return json.dumps(value, ensure_ascii=False)


def _later(value: object, now: datetime) -> str:
    """Write a value of a history row; an instant as what it was away then: +2.5s."""
    try:
        return f"+{span(datetime.fromisoformat(str(value)) - now)}"
    except (ValueError, TypeError):
        return _word(value)


def _history_entry(entry: HistoryLine, at: datetime, delta: timedelta | None) -> Entry:
    message = str(entry.data.get("message") or "")
    data = " ".join(
        f"{name}={_later(value, entry.at) if name in _INSTANTS else _word(value)}"
        for name, value in entry.data.items()
        if name != "message" and value is not None
    )
    cells = [
        Text(f"  {at:%H:%M:%S}.{at.microsecond // 1000:03d}"),
        Text("" if delta is None else f"+{span(delta)}"),
        Text(clean(entry.event)),
        Text(clean(entry.label)),
        Text("" if entry.attempt is None else str(entry.attempt)),
        Text(clean(data), style="dim"),
    ]
    return Entry(cells, clean(first_line(without_code(entry.data.get("code"), message))))


def _show_item(run: RunDetail, plan: Plan, *, history: bool) -> dict[str, object]:
    item: dict[str, object] = {
        "run": run.run,
        "id": run.id,
        "tenant": run.tenant,
        "service": run.service,
        "definition": run.definition,
        "state": run.state,
        "code": run.code,
        "cause": run.cause,
        "correlation": run.correlation_id,
        "trace": run.trace_id,
        "created_at": run.created_at,
        "updated_at": run.updated_at,
        "finished_at": run.finished_at,
        "wake_at": run.wake_at,
        "deadline_at": run.deadline_at,
        "active_s": run.active_for.total_seconds(),
        "lock": None if run.lock is None else run.lock.item,
        "steps": [_step_item(step, plan) for step in run.steps],
    }
    if history:
        item["history"] = [
            {
                "n": e.n,
                "at": e.at,
                "event": e.event,
                "step": e.step,
                "iteration": e.iteration,
                "attempt": e.attempt,
                "data": e.data,
            }
            for e in run.history
        ]
    return item


def _step_item(step: StepLine, plan: Plan) -> dict[str, object]:
    return {
        "step": step.name,
        "iteration": step.iteration,
        "kind": step.kind,
        "state": step.state,
        "undo_of": step.undo_of,
        "queue": step.queue,
        "tries": step.attempt,
        "probes": step.probes,
        "probed": step.probed,
        "in_doubt": step.doubt,
        "code": step.code,
        "message": step.message,
        "worker": step.worker,
        "on_timeout": plan.on_timeout.get(step.name),
        "wake_at": step.wake_at,
        "since": step.since,
        "started_at": step.started_at,
        "finished_at": step.finished_at,
        "items": step.items,
    }
