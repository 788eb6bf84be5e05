"""`milepost operations list` and `settle`: the records of `once` and of IdempotencyMiddleware."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from rich.text import Text

from ..recovery.acting import Attempt, attempting
from ..recovery.permissions import Act
from ..schemas.errors import StateError, UsageError
from ..schemas.ids import SystemIds
from ..streams.queries import Queries
from .listing import Entry, first_line
from .options import Globals
from .output import clean, column, span, state_text
from .store import changing, reading
from .unpark import require_reason

#: How long a record is kept that a person has settled.
KEEP = timedelta(days=30)
_IDS = SystemIds()


class Sql(Queries, file="operations.sql"):
    """Queries of these commands."""

    list_operations: str
    find_operations: str
    settle_operation: str


@dataclass(frozen=True, slots=True)
class Settled:
    """What a person says became of an operation.

    Attributes:
        state: SUCCEEDED, FAILED_FINAL, or PENDING for "it did not happen".
        result: JSON that further calls get.
        code: Why it failed.
    """

    state: str
    result: str | None = None
    code: str | None = None


async def list_operations(given: Globals, *, unknown: bool, kind: str | None, limit: int) -> None:
    """Print operations, the last changed first."""
    async with reading(given.database_url()) as store:
        rows = await store.fetch(Sql.list_operations, unknown, kind, limit)
    out = given.out
    for row in rows if out.as_json else ():
        out.item(**_item(row))
    if not rows:
        out.say("no such operations" if unknown or kind else "no operations yet")
        return
    columns = [column("operation"), column("state"), column("tries", right=True), column("age", right=True)]
    entries = [_entry(row) for row in rows]
    out.listing([*columns, column("resource"), column("tenant"), column("code")], entries)
    if len(rows) == limit:
        out.note(f"the last {limit}; --limit shows more")


def name_of(row: Any) -> str:
    """What a person calls an operation: KIND/KEY."""
    return f"{row['kind']}/{row['key']}"


def _entry(row: Any) -> Entry:
    lost = row["in_doubt"] and row["state"] == "RUNNING"
    resource = "/".join(part for part in (row["resource_type"], row["resource_id"]) if part)
    cells = [
        Text(clean(name_of(row))),
        state_text(row["state"], " (its process is gone)" if lost else ""),
        Text(str(row["attempts"])),
        Text(span(row["now"] - row["updated_at"])),
        Text(clean(resource)),
        Text(clean(row["tenant"])),
        Text(clean(row["code"] or "")),
    ]
    shown = row["message"] and row["state"] != "SUCCEEDED"
    return Entry(cells, clean(first_line(row["message"])) if shown else "")


def _item(row: Any) -> dict[str, object]:
    names = ("id", "tenant", "kind", "key", "service", "repeat", "state", "in_doubt", "code", "message")
    more = (
        "resource_type",
        "resource_id",
        "response_code",
        "doubt_at",
        "created_at",
        "updated_at",
        "wake_at",
    )
    item = {"operation": name_of(row), "tries": row["attempts"], "expires_at": row["expires_at"]}
    return {**item, **{name: row[name] for name in (*names, *more)}}


def said(*, succeeded: bool, result: Path | None, absent: bool, failed: str | None) -> Settled:
    """Read what a person says: exactly one of three.

    Raises:
        UsageError: MP601 for none or several, or a result that is no JSON.
    """
    if [succeeded, absent, failed is not None].count(True) != 1 or (result is not None and not succeeded):
        raise UsageError(
            "MP601",
            "say one of --succeeded (with --result FILE where callers need one), --absent, --failed CODE.",
        )
    if absent:
        return Settled("PENDING")
    if failed is not None:
        return Settled("FAILED_FINAL", code=failed.strip() or "UNNAMED")
    return Settled("SUCCEEDED", result=None if result is None else _json(result))


def _json(path: Path) -> str:
    try:
        return json.dumps(json.loads(path.read_text()))
    except (OSError, ValueError) as error:
        raise UsageError("MP601", f"--result {path}: {error}.") from error


async def settle(given: Globals, reference: str, what: Settled, *, tenant: str | None, reason: str) -> None:
    """Say what became of an operation that nobody knows of.

    Raises:
        UsageError: MP601 when several tenants have it.
        StateError: MP469 when there is none, or its outcome is known.
    """
    require_reason(reason)
    kind, _, key = reference.partition("/")
    row_id = None
    with suppress(ValueError):
        row_id = UUID(reference.removeprefix("urn:uuid:"))
    async with changing(given.database_url()) as connection:
        row = _one(reference, await connection.fetch(Sql.find_operations, kind, key, row_id, tenant))
        given.confirm(f"{name_of(row)} ({row['state']}) would become {what.state}. Go on?")
        actor, evidence = given.actor(), {"operation": str(row["id"]), "kind": row["kind"], "key": row["key"]}
        attempt = Attempt(
            act=Act.SETTLE_OPERATION,
            name="operation.settle",
            reason=reason,
            tenant=row["tenant"],
            evidence=evidence,
        )
        async with attempting(connection, actor, attempt):
            settled = (row["id"], row["fence"], what.state, what.result, what.code)
            done = await connection.fetchval(
                Sql.settle_operation, *settled, reason, KEEP, _IDS.new(), actor.name
            )
            if done is None:
                text = f"{name_of(row)} is {row['state']}, or was changed just now. Only an unknown one is settled."
                raise StateError("MP469", text)
    given.out.item(operation=name_of(row), id=row["id"], state=what.state, audit=done)
    follows = "; the next call with its key does it" if what.state == "PENDING" else ""
    given.out.say(f"{name_of(row)} {what.state} by {given.by()}{follows}")


def _one(reference: str, rows: Sequence[Any]) -> Any:
    if not rows:
        raise StateError("MP469", f"{reference}: there is no such operation.")
    if len(rows) > 1:
        tenants = ", ".join(repr(row["tenant"]) for row in rows)
        raise UsageError("MP601", f"{reference}: several tenants have it ({tenants}). Say --tenant.")
    (row,) = rows
    if not row["in_doubt"]:
        raise StateError("MP469", f"{name_of(row)} is {row['state']}: its outcome is known, or it runs now.")
    return row
