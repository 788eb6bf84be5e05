"""`milepost reconcile`: look for drift, repair what is safe, say what waits for a person."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

import asyncpg
import typer
from rich.text import Text

from ..recovery.acting import Attempt, attempting
from ..recovery.executor import Executor
from ..recovery.model import Action, Drift, Outcome, Reconciled
from ..recovery.passing import Pass
from ..recovery.permissions import Act, ActorKind
from ..recovery.policies import Policies
from ..recovery.proposing import DriftProposals
from ..schemas.ids import SystemIds
from ..streams.queries import Queries
from .application import optional_app
from .listing import Entry
from .model import run_reference
from .options import Globals
from .output import clean, column, span
from .problems import FINDINGS
from .store import changing, reading

if TYPE_CHECKING:
    from ..consumers.app import Milepost

_IDS = SystemIds()
#: Seconds between two looks at what probes have answered.
_LOOK = 0.2


class Sql(Queries, file="reconcile.sql"):
    """Queries of this module."""

    settled: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is to be looked at.

    Attributes:
        run: As people write it; None for everything.
        every: Show what needs nothing, too.
        most: Most decisions.
        wait: Longest wait for probes of that run, in seconds.
    """

    run: str | None = None
    dry_run: bool = False
    every: bool = False
    most: int = 1000
    wait: float = 10.0


#: What an outcome is called before it happens.
_WOULD = {
    Outcome.REPAIRED: "would repair",
    Outcome.PROPOSED: "would propose",
    Outcome.ESCALATED: "would tell",
}
#: Without an application.
NO_APP = (
    "desired against actual was not looked at, and the default policies held: no application is known. "
    "Give --app module:attribute, or set MILEPOST_APP."
)
_WORDS = {
    Outcome.REPAIRED: "repaired",
    Outcome.PROPOSED: "proposed",
    Outcome.ESCALATED: "for a person",
    Outcome.MOVED: "has moved",
    Outcome.ALREADY: "known",
    Outcome.NOTHING: "nothing to do",
}
#: What a probe's answer that settles nothing is called.
_SAID = {"NONE": "not known yet"}
#: Outcomes after which something waits for a person.
_LEFT = frozenset({Outcome.PROPOSED, Outcome.ESCALATED, Outcome.ALREADY})


async def reconcile(given: Globals, wanted: Wanted) -> None:
    """Look, repair, and print one line for each drift.

    Raises:
        UsageError: MP605, MP606 for the run's name, MP614 for who acts.
        StateError: MP604 there is no such run.
        typer.Exit: 1 when something waits for a person or could not be looked at, and with `dry_run` when anything
            would be done.
    """
    service = optional_app(given)
    run: UUID | None = None
    failed: list[str] = []
    if wanted.run is not None:
        async with reading(given.database_url()) as store:
            run = await store.find(run_reference(wanted.run))
    async with changing(given.database_url()) as connection, AsyncExitStack() as stack:
        if not wanted.dry_run:
            attempt = Attempt(
                act=Act.RECONCILE, name="reconcile", reason="asked for at the command line", run=run
            )
            await stack.enter_async_context(attempting(connection, given.actor(), attempt))
        looking = Pass(
            connection,
            Policies() if service is None else service.policies,
            Executor(
                ids=_IDS,
                by=given.by(),
                kind=ActorKind.PERSON,
                dry_run=wanted.dry_run,
                proposals=DriftProposals(_IDS),
            ),
            service=None if service is None else service.name,
            run=run,
            most=wanted.most,
        )
        found = await looking.every()
        if service is not None and wanted.run is None:
            differs, failed = await _inspected(service, connection, looking.executor)
            found += differs
        answers = {} if wanted.dry_run else await _answers(connection, found, wanted)
    shown = [one for one in found if wanted.every or one.outcome is not Outcome.NOTHING]
    show(given, shown, answers, dry_run=wanted.dry_run)
    given.out.say(summary(found, answers, dry_run=wanted.dry_run))
    _not_looked_at(given, failed, known=service is not None or run is not None)
    done = {one.outcome for one in found}
    if failed or done & _LEFT or (wanted.dry_run and Outcome.REPAIRED in done):
        raise typer.Exit(FINDINGS)


async def _inspected(
    service: Milepost, connection: asyncpg.Connection[Any], executor: Executor
) -> tuple[list[Reconciled], list[str]]:
    from ..consumers.inspecting import inspect_all

    return await inspect_all(service, connection, executor)


def _not_looked_at(given: Globals, failed: Sequence[str], *, known: bool) -> None:
    """Say what nobody has looked at, so that "nothing has drifted" does not mean that too."""
    if failed:
        given.out.item(not_inspected=list(failed), why="failed")
        given.out.say(f"could not be looked at: {', '.join(failed)} (MP652)")
    if not known:
        given.out.item(not_inspected=None, why="no application")
        given.out.say(NO_APP)


def show(
    given: Globals,
    found: Sequence[Reconciled],
    answers: Mapping[UUID, Mapping[str, Any]],
    *,
    dry_run: bool,
) -> None:
    """Print what was found."""
    out = given.out
    for one in found:
        out.item(**_item(one, answers.get(one.id) if one.id else None, dry_run=dry_run))
    if found:
        columns = [column("drift"), column("what"), column("age", right=True), column("action")]
        entries = [_entry(one, answers.get(one.id) if one.id else None, dry_run=dry_run) for one in found]
        out.listing([*columns, column("outcome")], entries)


def summary(found: Sequence[Reconciled], answers: Mapping[UUID, Mapping[str, Any]], *, dry_run: bool) -> str:
    """Count in words: "1 UNKNOWN → MARK_AS_SUCCESS; 2 WORKER_LOST → RETRY"."""
    counts: Counter[str] = Counter()
    for one in found:
        if one.outcome in {Outcome.NOTHING, Outcome.MOVED}:
            continue
        answer = answers.get(one.id) if one.id else None
        action = (
            one.plan.action.value if answer is None else _SAID.get(answer["decision"], answer["decision"])
        )
        known = " (known)" if one.outcome is Outcome.ALREADY else ""
        asks = " (waits for a person)" if one.outcome is Outcome.PROPOSED else ""
        counts[f"{one.observation.drift} → {action}{asks}{known}"] += 1
    if not counts:
        return "nothing has drifted"
    words = "; ".join(f"{n} {what}" for what, n in counts.items())
    return f"would do: {words}; nothing was changed" if dry_run else words


async def _answers(
    connection: asyncpg.Connection[Any], found: Sequence[Reconciled], wanted: Wanted
) -> dict[UUID, Mapping[str, Any]]:
    """Wait for what probes answer that were asked now; without a run nobody waits for them."""
    asked = {
        one.id: one.observation
        for one in found
        if one.id and one.outcome is Outcome.REPAIRED and one.observation.drift is Drift.UNKNOWN
    }
    answers: dict[UUID, Mapping[str, Any]] = {}
    until = time.monotonic() + (wanted.wait if wanted.run is not None else 0.0)
    while any(id not in answers or answers[id]["decision"] == "NONE" for id in asked):
        for id, seen in asked.items():
            row = await connection.fetchrow(Sql.settled, seen.run, seen.step, seen.iteration, id)
            if row is not None:
                answers[id] = dict(row)
        if time.monotonic() >= until:
            break
        await asyncio.sleep(_LOOK)
    return answers


def _item(one: Reconciled, answer: Mapping[str, Any] | None, *, dry_run: bool) -> dict[str, object]:
    seen, plan = one.observation, one.plan
    return {
        "drift": seen.drift.value,
        "subject": seen.subject,
        "what": seen.label,
        "run": None if seen.run is None else seen.run,
        "step": seen.step,
        "iteration": seen.iteration,
        "tenant": seen.tenant,
        "service": seen.service,
        "state": seen.state,
        "since": seen.since,
        "age": seen.age,
        "action": plan.action.value if answer is None else answer["decision"],
        "level": int(plan.level),
        "reason": plan.reason if answer is None else answer["reason"],
        "outcome": one.outcome.value,
        "dry_run": dry_run,
        "after": one.after or None,
        "evidence": {**seen.evidence, **plan.evidence},
        "reconciliation": None if dry_run else one.id,
        "proposal": None if dry_run else one.proposal,
    }


def _entry(one: Reconciled, answer: Mapping[str, Any] | None, *, dry_run: bool) -> Entry:
    seen = one.observation
    words = _WOULD.get(one.outcome, _WORDS[one.outcome]) if dry_run else _WORDS[one.outcome]
    reason = one.plan.reason
    if answer is not None:
        words = _SAID.get(answer["decision"], answer["decision"])
        reason = ": ".join(part for part in (answer["reason"], answer["message"]) if part)
    elif seen.drift is Drift.UNKNOWN and one.outcome is Outcome.REPAIRED and not dry_run:
        words = "asked"
    action = one.plan.action.value
    cells = [
        Text(seen.drift.value),
        Text(clean(seen.label)),
        Text(span(seen.age)),
        Text(action if one.plan.action is not Action.NONE else "-"),
        Text(words),
    ]
    return Entry(cells, clean(reason))
