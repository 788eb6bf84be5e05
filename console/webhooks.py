"""`milepost webhooks list`, `show` and `redrive`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import asyncpg
import typer
from rich.text import Text

from ..inbox.webhook_model import WebhookState
from ..recovery.acting import Attempt, attempting
from ..recovery.permissions import Act
from ..schemas.errors import StateError, UsageError
from ..schemas.ids import SystemIds
from ..streams.queries import Queries
from .findings import counted
from .listing import Entry, first_line
from .options import Globals
from .output import clean, column, span, state_text
from .problems import FINDINGS
from .store import changing, reading
from .unpark import require_reason

_PREVIEW = 5
_IDS = SystemIds()


class Sql(Queries, file="webhooks.sql"):
    """Queries of these commands, and of doctor."""

    list_webhooks: str
    find_webhooks: str
    redrive_webhook: str
    records_in_trouble: str


def read_states(texts: Sequence[str]) -> list[str]:
    """Read --state, in whatever case.

    Raises:
        UsageError: MP601 naming the states there are.
    """
    known = [state.value for state in WebhookState]
    found = [text.strip().upper() for text in texts]
    if wrong := [text for text in found if text not in known]:
        raise UsageError(
            "MP601", f"--state {wrong[0]}: there is no such state. There are: {', '.join(known)}."
        )
    return found


async def list_webhooks(given: Globals, states: Sequence[str], *, provider: str | None, limit: int) -> None:
    """Print webhooks, the youngest first."""
    async with reading(given.database_url()) as store:
        rows = await store.fetch(Sql.list_webhooks, list(states), provider, limit)
    out = given.out
    for row in rows if out.as_json else ():
        out.item(**item_of(row))
    if not rows:
        out.say("no such webhooks" if states or provider else "no webhooks yet")
        return
    columns = [column("webhook"), column("state"), column("tries", right=True), column("age", right=True)]
    out.listing([*columns, column("tenant"), column("code")], [_entry(row) for row in rows])
    if len(rows) == limit:
        out.note(f"the youngest {limit}; --limit shows more")


def name_of(row: Any) -> str:
    """What a person calls a webhook: PROVIDER/EVENT."""
    return f"{row['provider']}/{row['event_id']}"


def _entry(row: Any) -> Entry:
    conflicts = f"{row['conflicts']} with another body" if row["conflicts"] else ""
    code = ", ".join(part for part in (row["code"] if _troubled(row) else "", conflicts) if part)
    cells = [
        Text(clean(name_of(row))),
        state_text(row["state"]),
        Text(str(row["attempts"] or "")),
        Text(span(row["now"] - row["received_at"])),
        Text(clean(row["tenant"])),
        Text(clean(code)),
    ]
    return Entry(cells, clean(first_line(row["message"])) if row["message"] and _troubled(row) else "")


def _troubled(row: Any) -> bool:
    return row["state"] not in {"PROCESSED", "IGNORED"}


def item_of(row: Any) -> dict[str, object]:
    """Return a webhook as an object for --json."""
    return {
        "webhook": name_of(row),
        "id": row["id"],
        "tenant": row["tenant"],
        "service": row["service"],
        "provider": row["provider"],
        "event_id": row["event_id"],
        "state": row["state"],
        "tries": row["attempts"],
        "code": row["code"],
        "message": row["message"],
        "conflicts": row["conflicts"],
        "bytes": row["size"],
        "published": row["published"],
        "received_at": row["received_at"],
        "finished_at": row["finished_at"],
        "wake_at": row["wake_at"],
    }


async def show_webhook(given: Globals, reference: str, *, tenant: str | None) -> None:
    """Print one webhook with its headers and its body as it came."""
    async with reading(given.database_url()) as store:
        row = _one(reference, await store.fetch(Sql.find_webhooks, *_named(reference), tenant))
    out = given.out
    headers = json.loads(row["headers"])
    body = row["body"].decode("utf-8", "replace")
    out.item(**item_of(row), path=row["path"], headers=headers, body=body, conflict_at=row["conflict_at"])
    words = [f"{row['attempts']} tries" if row["attempts"] != 1 else "1 try", row["code"] or ""]
    out.say(Text.assemble((clean(name_of(row)), "bold"), "  ", state_text(row["state"])))
    out.say(f"  received {span(row['now'] - row['received_at'])} ago, " + ", ".join(filter(None, words)))
    for text in (row["message"], f"{row['conflicts']} times with another body" if row["conflicts"] else ""):
        if text:
            out.hanging(Text("  "), clean(text))
    out.say(f"  POST {row['path']}")
    for name, value in headers.items():
        out.say(f"  {name}: {value}")
    out.say("")
    out.say(body)


def _named(reference: str) -> tuple[str, str]:
    provider, slash, event = reference.partition("/")
    if not slash or not provider or not event:
        raise UsageError(
            "MP601", f"WEBHOOK {reference!r} is not PROVIDER/EVENT, as `milepost webhooks list` shows them."
        )
    return provider, event


def _one(reference: str, rows: Sequence[Any]) -> Any:
    if not rows:
        raise StateError("MP469", f"{reference}: there is no such webhook.")
    if len(rows) > 1:
        tenants = ", ".join(repr(row["tenant"]) for row in rows)
        raise UsageError("MP601", f"{reference}: several tenants have it ({tenants}). Say --tenant.")
    return rows[0]


async def redrive(
    given: Globals, references: Sequence[str], *, provider: str | None, tenant: str | None, reason: str
) -> None:
    """Let FAILED webhooks be worked on again, and print one outcome for each.

    Raises:
        UsageError: MP601 when webhooks are neither named nor chosen, or both.
        StateError: MP469 when the only one that was named is not FAILED.
        typer.Exit: 1 when some were refused.
    """
    if bool(references) == (provider is not None):
        raise UsageError(
            "MP601", "name webhooks as PROVIDER/EVENT, or choose those that FAILED by --provider."
        )
    require_reason(reason)
    refused = 0
    async with changing(given.database_url()) as connection:
        if references:
            names = list(dict.fromkeys(references))
            found = [await connection.fetch(Sql.find_webhooks, *_named(name), tenant) for name in names]
            rows = [_one(name, rows) for name, rows in zip(names, found, strict=True)]
        else:
            rows = await connection.fetch(Sql.list_webhooks, ["FAILED"], provider, 100_000)
            _preview(given, rows)
        for row in rows:
            done = await _redriven(given, connection, row, reason, alone=len(references) == 1)
            outcome = "REFUSED" if done is None else "RECEIVED"
            refused += done is None
            given.out.item(webhook=name_of(row), id=row["id"], outcome=outcome, audit=done)
            given.out.say(
                f"{name_of(row)}: {'not FAILED any more' if done is None else 'will be worked on again'}"
            )
    given.out.say(f"{len(rows) - refused} redriven" + (f", {refused} refused" if refused else ""))
    if refused:
        raise typer.Exit(FINDINGS)


async def _redriven(
    given: Globals, connection: asyncpg.Connection[Any], row: Any, reason: str, *, alone: bool
) -> UUID | None:
    """Ask for one; return the audit entry, None when it is not FAILED any more, which the audit has then."""
    actor, evidence = given.actor(), {"webhook": str(row["id"]), "provider": row["provider"]}
    attempt = Attempt(
        act=Act.RETRY_WEBHOOK, name="webhook.redrive", reason=reason, tenant=row["tenant"], evidence=evidence
    )
    problem = StateError("MP469", f"{name_of(row)} is {row['state']}; only FAILED ones are redriven.")
    done: UUID | None = None
    try:
        async with attempting(connection, actor, attempt):
            done = await connection.fetchval(Sql.redrive_webhook, row["id"], _IDS.new(), actor.name, reason)
            if done is None:
                raise problem
    except StateError as error:
        if alone or error is not problem:
            raise
    return done


def _preview(given: Globals, rows: Sequence[Any]) -> None:
    if not rows:
        return
    amount = counted(len(rows), "webhook")
    given.out.note(f"{amount}:")
    for row in rows[:_PREVIEW]:
        given.out.note(f"  {name_of(row)} {row['code']}")
    if len(rows) > _PREVIEW:
        given.out.note(f"  … and {len(rows) - _PREVIEW} more")
    given.confirm(f"{amount} would be worked on again. Go on?")
