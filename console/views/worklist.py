"""The worklist: one list of what waits for a person, the most urgent first.

What stands in front of a person is the query that `milepost worklist` asks. Beside it are outcomes that nobody knows,
and dead letters, one line for each cause.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import asyncpg

from ...recovery.age_kinds import KINDS
from ...recovery.ages import Age
from ...recovery.permissions import NOTHING, Scope
from ...schemas.states import Risk
from ...streams.queries import Queries
from ..acts import Sql as Acts
from ..listing import first_line, without_code
from ..worklist import possible
from .answers import answers
from .letter_rows import spoken
from .reading import snapshot
from .troubles import page_of, since, standing_still
from .work import GROUPS, Question, Worklist, WorkRow

__all__ = [
    "GROUPS",
    "MOST",
    "ROWS",
    "Question",
    "WorkRow",
    "Worklist",
    "label_of",
    "read_question",
    "severity_of",
    "worklist",
]

#: Rows of the page, and most of an export; of each kind.
ROWS, MOST = 200, 10_000
#: Groups that do not come from what stands in front of persons.
_BESIDE: Final = frozenset({"unknown", "letters", "troubles"})
_RANK: Final = {risk: place for place, risk in enumerate(Risk)}


class Sql(Queries, file="worklist.sql"):
    """Queries of this module."""

    unknown: str
    letters: str
    severities: str


async def worklist(
    connection: asyncpg.Connection[Any],
    scope: Scope,
    *,
    group: str | None = None,
    saga: str | None = None,
    limit: int = ROWS,
    payloads: Scope = NOTHING,
) -> Worklist:
    """Read what waits for a person.

    Args:
        connection: To the database.
        scope: What may be seen.
        group: Only that key of `GROUPS`.
        saga: Only that workflow.
        limit: Rows of each kind at most.
        payloads: Of what the reader may see payloads; a failure's words may quote them, so others are told its code.
    """
    tenants, sagas = scope.parameters()
    if saga is not None:
        sagas = [saga] if sagas is None or saga in sagas else []
    async with snapshot(connection):
        severities = await severity_of(connection)
        persons = await connection.fetch(
            Acts.worklist, _kinds(group), limit, None, [], tenants, sagas, json.dumps(severities)
        )
        unknown = (
            await connection.fetch(Sql.unknown, tenants, sagas, limit) if group in {None, "unknown"} else []
        )
        letters = (
            await connection.fetch(Sql.letters, tenants, limit)
            if group in {None, "letters"} and sagas is None
            else []
        )
        now: datetime = await connection.fetchval("SELECT milepost.clock()")
    looked = group in {None, "troubles"} and saga is None
    still = await standing_still(connection, scope) if looked else []
    rows = [_person(row, severities, payloads) for row in persons if group is None or group not in _BESIDE]
    rows += [_unknown(row, severities, payloads) for row in unknown]
    rows += _of_letters(letters, readable=payloads == scope)
    rows += [_trouble(age, now) for age in still[:limit]]
    if group in {None, "approvals"}:
        rows += await answers(connection, scope, saga=saga, limit=limit)
    rows.sort(key=lambda row: (-_RANK[row.urgency], row.since))
    counts = {name: sum(row.group == name for row in rows) for name in GROUPS}
    more = len(rows) > limit or max(len(persons), len(unknown), len(letters)) >= limit
    return Worklist(now=now, rows=rows[:limit], more=more, groups=counts)


async def severity_of(connection: asyncpg.Connection[Any]) -> dict[str, str]:
    """Return the severity of each workflow that a process has told of."""
    return {row["saga"]: row["severity"] for row in await connection.fetch(Sql.severities)}


def _kinds(group: str | None) -> list[str]:
    if group is None:
        return []
    return list(GROUPS[group])


def _urgency(saga: str, severities: dict[str, str], question: Question | None = None) -> Risk:
    own = Risk(severities.get(saga, Risk.MEDIUM))
    return own if question is None or _RANK[own] > _RANK[question.risk] else question.risk


def label_of(row: Any) -> str | None:
    """Return a step's name, with the iteration where there is one."""
    return f"{row['step']}#{row['iteration']}" if row["step"] and row["iteration"] else row["step"]


def read_question(text: str | None, expires: datetime | None) -> Question | None:
    """Read what is asked from a step's row; None where nothing is.

    Args:
        text: The column `asked`, as JSON.
        expires: Of the row, when it waits.
    """
    if text is None:
        return None
    asked = json.loads(text)
    given = [one["by"] for one in asked["given"]]
    return Question(
        **{name: asked[name] for name in ("risk", "needed", "roles")},
        left=asked["needed"] - len(given),
        given=given,
        expires=expires,
        params=asked.get("params"),
    )


def _message(row: Any) -> str:
    return first_line(without_code(row["code"], row["message"] or ""))


def _base(row: Any, payloads: Scope) -> dict[str, Any]:
    step = label_of(row)
    anchor = f"#{'step' if row['state'] == 'UNKNOWN' else 'decide'}-{step}" if step else ""
    names = ("kind", "run_id", "tenant", "service", "saga", "state", "run_state", "code", "doubt", "since")
    return {name: row[name] for name in names} | {
        "id": f"{row['run_id']}:{step or ''}",
        "title": f"{row['saga']}/{row['key']}",
        "href": f"/runs/{row['run_id']}{anchor}",
        "step": step,
        # What asks for a second person was said by the first.
        "message": _message(row)
        if row["kind"] == "confirm" or payloads.allows(row["tenant"], row["saga"])
        else "",
        "tries": row["attempt"],
    }


def _person(row: Any, severities: dict[str, str], payloads: Scope) -> WorkRow:
    question = read_question(row["question"], row["wake_at"] if row["state"] == "WAITING" else None)
    undo = row["undo_of"] is not None
    acts = possible(row["kind"], row["run_state"], row["cause"], asked=question is not None, undo=undo)
    return WorkRow(
        **_base(row, payloads),
        question=question,
        urgency=_urgency(row["saga"], severities, question),
        possible=acts,
        asked=row["asked"],
    )


def _unknown(row: Any, severities: dict[str, str], payloads: Scope) -> WorkRow:
    return WorkRow(**_base(row, payloads), urgency=_urgency(row["saga"], severities))


def _of_letters(found: Iterable[Any], *, readable: bool) -> list[WorkRow]:
    """Return a row for each cause; what only waits for its turn is told with what it waits behind."""
    causes, followers = dict[tuple[str, str], WorkRow](), list[Any]()
    rows = []
    for row in found:
        if row["code"] == "KEY_HELD":
            followers.append(row)
            continue
        rows.append(_letters(row, readable=readable))
        causes.setdefault((row["scope"], row["topic"]), rows[-1])
    for row in followers:
        cause = causes.get((row["scope"], row["topic"]))
        if cause is None:
            rows.append(_letters(row, readable=readable))
        else:
            cause.behind = row["amount"]
    return rows


def _letters(row: Any, *, readable: bool) -> WorkRow:
    sent = not row["scope"].startswith("relay:")
    scope, stage = (row["scope"].removeprefix("consumer:"), "") if sent else ("relay", "RELAY")
    return WorkRow(
        id=f"letters:{row['scope']}:{row['topic']}:{row['code']}",
        kind="letters",
        title=f"{scope}, {row['topic']}",
        href=f"/letters?code={row['code']}&topic={row['topic']}",
        state="OPEN",
        code=row["code"],
        message=first_line(spoken(row["message"], row["code"], stage, readable=readable)),
        since=row["since"],
        amount=row["amount"],
        urgency=KINDS["dead_letter" if sent else "outbox_parked"].severity,
        possible=["redrive", "ignore"],
        asked="redrive" if row["asked"] else None,
    )


def _trouble(age: Age, now: datetime) -> WorkRow:
    """Return what stands still as a row: its urgency is that of its workflow."""
    title, _, step = age.first.partition(" ") if age.saga else (age.first, "", "")
    return WorkRow(
        id=f"trouble:{age.what}:{age.service}:{age.saga}",
        kind="trouble",
        title=title or age.service or age.what,
        href=page_of(age),
        run_id=UUID(age.run) if age.run else None,
        tenant=age.tenant,
        service=age.service,
        saga=age.saga or None,
        step=step or None,
        state=age.level.upper(),
        code=age.what,
        message=f"{age.kind.words}; {age.kind.means}. {age.kind.fix}",
        runbook=None if age.kind.runbook is None else age.kind.runbook.value.lower(),
        urgency=age.severity,
        since=since(age, now),
        amount=age.amount,
    )
