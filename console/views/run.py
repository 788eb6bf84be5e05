"""One run in full: where it stands, what each step did and when, on what evidence, and who decided what."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import asyncpg

from ...recovery.permissions import Actor, Scope
from ...schemas.states import Risk
from ...streams.queries import Queries
from .. import acts, artifacts
from ..manifest import Manifest, read_manifest
from ..model import Plan, RunDetail, situation
from ..output import span
from ..store import Store
from .choices import of_run
from .drawn import nodes_of, run_svg
from .lanes import lanes
from .reading import snapshot
from .run_parts import lock_view, read_json, read_row, readable, request_view, step_view, timeline
from .run_rows import RequestView, RunView
from .worklist import severity_of


class Sql(Queries, file="run.sql"):
    """Queries of this module."""

    whose: str
    more: str
    payloads: str
    evidence: str
    audited: str
    messages: str
    published: str
    children: str
    parents: str
    request: str


@dataclass(frozen=True, slots=True)
class _Found:
    """What was read of a run, in one snapshot.

    Attributes:
        more: What `milepost runs show` does not need.
        payloads: Of each step, by name and iteration.
        beside: What belongs to it, by name of the view's field.
        to_review: What a person read last stood in its way.
    """

    run: RunDetail
    more: asyncpg.Record
    plan: Plan
    manifest: Manifest
    payloads: Mapping[tuple[str, str], asyncpg.Record]
    beside: Mapping[str, Sequence[Any]]
    to_review: bool
    severity: Risk


async def run_view(
    connection: asyncpg.Connection[Any],
    scope: Scope,
    run_id: UUID,
    *,
    actor: Actor,
    groups: Collection[str] = (),
) -> RunView | None:
    """Read a run.

    Args:
        connection: To the database.
        scope: What may be seen.
        run_id: Which.
        actor: Who reads: payloads are masked without the right to them, and acts are those of this reader.
        groups: Of that reader, beside the roles.

    Returns:
        The run; None where there is none, or where it may not be seen, which is told apart nowhere.
    """
    async with snapshot(connection):
        whose = await connection.fetchrow(Sql.whose, run_id)
        if whose is None or not scope.allows(whose["tenant"], whose["saga"]):
            return None
        found = await _found(connection, run_id)
    return _view(found, actor, groups)


async def _found(connection: asyncpg.Connection[Any], run_id: UUID) -> _Found:
    store = Store(connection)
    run = await store.run(run_id, history=True)
    more = await store.fetchrow(Sql.more, run_id)
    plan = Plan(nodes=nodes_of(more["outline"]))
    queries = {
        "requests": acts.Sql.requests_of,
        "evidence": Sql.evidence,
        "audit": Sql.audited,
        "messages": Sql.messages,
        "published": Sql.published,
        "artifacts": artifacts.Sql.artifacts_of,
        "children": Sql.children,
        "parents": Sql.parents,
    }
    return _Found(
        run=run,
        more=more,
        plan=plan,
        manifest=await read_manifest(store, run, plan),
        payloads={(r["name"], r["iteration"]): r for r in await store.fetch(Sql.payloads, run_id)},
        beside={name: await store.fetch(query, run_id) for name, query in queries.items()},
        to_review=bool(await store.fetch(acts.Sql.last_review, run_id)),
        severity=Risk((await severity_of(connection)).get(run.saga, Risk.MEDIUM)),
    )


def _view(found: _Found, actor: Actor, groups: Collection[str]) -> RunView:
    run, more, plan, severity = found.run, found.more, found.plan, found.severity
    shown = readable(actor, run)
    own = {name: getattr(run, name) for name in _OWN}
    return RunView(
        **own,
        **_beside(found.beside, shown),
        correlation=run.correlation_id,
        trace=run.trace_id,
        priority=more["priority"],
        severity=severity,
        version=more["version"],
        situation=situation(run, plan, span),
        lock=lock_view(run.lock),
        parked_at=more["parked_at"],
        payloads=shown,
        input=read_json(more["input"], readable=shown),
        steps=[
            step_view(
                actor,
                run,
                step,
                found.payloads[step.name, step.iteration],
                severity,
                groups=groups,
                readable=shown,
            )
            for step in run.steps
        ],
        ahead=plan.not_reached(run) if run.finished_at is None and run.cause is None else [],
        timeline=timeline(run.history, readable=shown),
        lanes=lanes(run.steps, run.history, run.now),
        drawing=run_svg(run, more["outline"]),
        manifest=found.manifest.item,
        choices=of_run(
            actor, run, severity=severity, parked=more["parked_at"] is not None, to_review=found.to_review
        ),
    )


def _beside(rows: Mapping[str, Sequence[Any]], shown: bool) -> dict[str, Any]:
    """Return what belongs to a run, by field of the view."""
    read = {"evidence": ("evidence",), "audit": ("before", "after"), "messages": ("payload",)}
    made = {
        name: [read_row(row, shown, *read.get(name, ())) for row in found] for name, found in rows.items()
    }
    return made | {"requests": [request_view(row) for row in rows["requests"]]}


_OWN = (
    *("id", "tenant", "service", "saga", "key", "definition", "state", "code", "cause", "created_at"),
    *("updated_at", "finished_at", "deadline_at", "active_for", "now"),
)


async def request_of(connection: asyncpg.Connection[Any], request_id: UUID) -> RequestView | None:
    """Read what became of a request; None where there is none."""
    row = await connection.fetchrow(Sql.request, request_id)
    return None if row is None else request_view(row)
