"""Reading the audit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg

from .audit import Sql
from .permissions import Scope

#: What an entry is about that is about no run, by what it has kept: the first whose names are all there.
_ABOUT = (
    "{what}",
    "{subject}",
    "letter {letter}",
    "bulk {bulk}",
    "webhook of {provider}",
    "{kind}/{key}",
    "{consumer}, {topic}",
    "{name}, {role}",
    "{name}",
    "request {request}",
    "proposal {proposal}",
    "signal {signal}",
    "{path}",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """Which entries; what is None does not matter.

    Attributes:
        since: Of the last so much time, or from then on.
        until: Before then.
        actor: Its name, however it is capitalised.
        kind: PERSON, SYSTEM or AGENT.
        act: Such as "run.cancel"; "run" and "letter" are all that begin so.
        outcome: DONE, HELD or REFUSED.
        before: Only what comes after this entry in the list, for the next page.
    """

    since: timedelta | datetime | None = None
    until: datetime | None = None
    actor: str | None = None
    kind: str | None = None
    act: str | None = None
    outcome: str | None = None
    run: UUID | None = None
    before: tuple[datetime, UUID] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """An entry.

    Attributes:
        run: The run's saga and key; None where it is about none, or the run is gone.
        place: Its place in the chain; None while it waits for one.
    """

    id: UUID
    at: datetime
    tenant: str
    actor: str
    kind: str
    act: str
    outcome: str
    run_id: UUID | None
    run: str | None
    step: str | None
    reason: str
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    evidence: Mapping[str, Any]
    place: int | None

    @property
    def about(self) -> str:
        """Whom or what it is about, for people; '' where nothing that it kept says so."""
        if self.run or self.run_id:
            return self.run or str(self.run_id)
        known = {**self.before, **self.after, **self.evidence}
        grants = known.get("grants")
        if isinstance(grants, list) and "name" in known:
            known["role"] = " and ".join(_granted(one) for one in grants)
        elif "role" in known:
            known["role"] = _granted(known)
        for words in _ABOUT:
            try:
                return words.format_map(
                    {name: value for name, value in known.items() if value not in ("", None)}
                )
            except KeyError:
                continue
        return ""


def _granted(grant: Mapping[str, Any]) -> str:
    """Say a grant: operator of acme, for order."""
    words = str(grant.get("role", "")).lower()
    words += f" of {', '.join(grant['tenants'])}" if grant.get("tenants") else ""
    return words + (f", for {', '.join(grant['sagas'])}" if grant.get("sagas") else "")


async def entries(
    connection: asyncpg.Connection[Any], scope: Scope, wanted: AuditFilter, *, limit: int = 100
) -> list[AuditEntry]:
    """List entries of the audit, the youngest first.

    Args:
        limit: At most so many.
    """
    since = wanted.since
    rows = await connection.fetch(
        Sql.entries,
        since if isinstance(since, datetime) else None,
        since if isinstance(since, timedelta) else None,
        *(wanted.until, wanted.actor, wanted.kind, wanted.act, wanted.outcome, wanted.run),
        *scope.parameters(),
        *(wanted.before or (None, None)),
        limit,
    )
    return [_entry(row) for row in rows]


def _entry(row: asyncpg.Record) -> AuditEntry:
    plain = ("id", "at", "tenant", "actor", "kind", "act", "outcome", "run_id", "step", "reason", "place")
    parts = {name: json.loads(row[name]) for name in ("before", "after", "evidence")}
    run = f"{row['saga']}/{row['key']}" if row["saga"] is not None else None
    return AuditEntry(run=run, **{name: row[name] for name in plain}, **parts)
