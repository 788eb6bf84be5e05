"""Writing an entry of the audit: who did what, or was not let, and why."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import UUID

import asyncpg

from ..schemas.ids import Ids
from ..streams.queries import Queries
from .permissions import Actor


class Sql(Queries, file="audit.sql"):
    """Queries of this module."""

    write: str
    entries: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An entry to be.

    Attributes:
        act: As the audit calls it, such as "letter.redrive".
        outcome: DONE, or REFUSED; HELD while a second person is waited for.
        evidence: What is known beside it; of a refusal why, under "refused".
    """

    act: str
    reason: str
    outcome: Literal["DONE", "HELD", "REFUSED"] = "DONE"
    tenant: str = ""
    run: UUID | None = None
    step: str | None = None
    before: Mapping[str, Any] = field(default_factory=dict)
    after: Mapping[str, Any] = field(default_factory=dict)
    evidence: Mapping[str, Any] = field(default_factory=dict)


async def write(connection: asyncpg.Connection[Any], actor: Actor, entry: Entry, ids: Ids) -> UUID:
    """Write an entry, in the open transaction or one of its own; returns its id."""
    written = ids.new()
    parts = (
        json.dumps(part, default=str, ensure_ascii=False)
        for part in (entry.before, entry.after, entry.evidence)
    )
    await connection.execute(
        Sql.write,
        written,
        entry.tenant,
        actor.name,
        actor.kind.value,
        entry.act,
        entry.outcome,
        entry.run,
        entry.step,
        entry.reason.strip() or "none was given",
        *parts,
    )
    return written
