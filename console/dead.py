"""`milepost dead list` and `milepost dead show`."""

from __future__ import annotations

import base64
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

from ..schemas.errors import StateError
from ..schemas.packing import unpack_headers
from .dead_store import LIVE, Filter, Row, Sql, no_letter, owner, words
from .findings import counted
from .listing import Entry, first_line
from .options import Globals
from .output import Output, clean, column, rfc3339, span, state_text
from .store import reading

#: Most bytes of a value that `dead show` prints; --payload writes all of them.
SHOWN = 2_000
#: So many letters in a row with one code are most likely one cause.
POISON = 5


async def list_letters(given: Globals, wanted: Filter, *, group: bool) -> None:
    """Print letters, the oldest first; with `group`, those in a row with the same code as one line."""
    async with reading(given.database_url()) as store:
        rows = await store.fetch(Sql.groups if group else Sql.letters, *wanted.arguments())
    out = given.out
    if not rows:
        out.say("no open dead letters" if wanted.empty else "no such dead letters")
        return
    if group:
        _groups(out, rows)
    else:
        _letters(out, rows)
    if len(rows) == wanted.limit:
        out.note(f"the first {wanted.limit}; --limit shows more")


def _letters(out: Output, rows: Sequence[Row]) -> None:
    for row in rows:
        out.item(**item(row))
    heads = ["id", "status", "consumer", "topic", "key", "code", "tries", "failed"]
    out.listing(
        [*(column(head, right=head in {"id", "tries", "failed"}) for head in heads), column("message")],
        [Entry([*_cells(row), Text("")], clean(first_line(row["message"]))) for row in rows],
    )


def _cells(row: Row) -> list[Text]:
    status = "" if row["status"] == "OPEN" else row["status"]
    texts = [
        str(row["n"]),
        status,
        owner(row["scope"]),
        row["topic"],
        words(row["key"], 20),
        row["code"],
        str(row["attempts"]),
        span(row["now"] - row["last_failed_at"]),
    ]
    return [Text(clean(text)) for text in texts]


def _groups(out: Output, rows: Sequence[Row]) -> None:
    entries = []
    for row in rows:
        poison = row["amount"] >= POISON
        out.item(
            consumer=owner(row["scope"]),
            topic=row["topic"],
            code=row["code"],
            amount=row["amount"],
            first=row["first"],
            last=row["last"],
            since=row["since"],
            message=row["message"],
            one_cause=poison,
        )
        texts = [
            str(row["amount"]),
            f"{row['first']}–{row['last']}" if row["amount"] > 1 else str(row["first"]),
            owner(row["scope"]),
            row["topic"],
            row["code"],
            span(row["now"] - row["since"]),
            "one cause, most likely" if poison else "",
        ]
        entries.append(Entry([Text(clean(text)) for text in texts], clean(first_line(row["message"]))))
    heads = ["letters", "ids", "consumer", "topic", "code", "since", ""]
    out.listing([column(head, right=head in {"letters", "since"}) for head in heads], entries)


def item(row: Row) -> dict[str, Any]:
    """Return a letter as --json prints it."""
    return {
        "id": row["n"],
        "letter": row["id"],
        "status": row["status"],
        "consumer": owner(row["scope"]),
        "tenant": row["tenant"],
        "event": row["event_id"],
        "topic": row["topic"],
        "partition": row["partition"],
        "offset": row["offset"],
        "seq": row["seq"],
        "key": words(row["key"], 1000) if row["key"] is not None else None,
        "stage": row["stage"],
        "code": row["code"],
        "message": row["message"],
        "attempts": row["attempts"],
        "first_failed_at": row["first_failed_at"],
        "last_failed_at": row["last_failed_at"],
        "recoverable": row["recoverable"],
        "asked_at": row["asked_at"],
        "asked_by": row["asked_by"],
        "resolved_at": row["resolved_at"],
        "resolved_by": row["resolved_by"],
    }


async def show_letter(given: Globals, n: int, *, payload: Path | None) -> None:
    """Print one letter with everything that is known of it; write its value to `payload`.

    Raises:
        StateError: MP440 there is no such letter, MP443 it has no value to write.
    """
    async with reading(given.database_url()) as store:
        rows = await store.fetch(Sql.letter, n)
        failures = await store.fetch(Sql.failures, rows[0]["id"]) if rows else []
    if not rows:
        raise no_letter(n)
    (row,) = rows
    if payload is not None:
        _write(row, payload)
        given.out.note(f"{counted(len(row['value']), 'byte')} written to {payload}")
        return
    headers = unpack_headers(row["headers"])
    given.out.item(**item(row), **_bodies(row, headers), failures=[dict(failure) for failure in failures])
    _show(given.out, row, headers, failures)


def _write(row: Row, payload: Path) -> None:
    if row["value"] is None:
        raise StateError(
            "MP443", f"letter {row['n']}: its record has no value (a tombstone), so nothing was written."
        )
    if str(payload) == "-":
        sys.stdout.buffer.write(row["value"])
        sys.stdout.buffer.flush()
    else:
        payload.write_bytes(row["value"])


def _bodies(row: Row, headers: Sequence[tuple[str, bytes | None]]) -> dict[str, Any]:
    return {
        "sent_at": row["sent_at"],
        "headers": [{"name": name, **_both(value)} for name, value in headers],
        "key_bytes": _both(row["key"])["base64"],
        "value": _both(row["value"]),
        "behind": list(row["behind"]),
        "edited_from": row["edit_of_n"],
        "edited_as": row["edited_as_n"],
    }


def _both(data: bytes | None) -> dict[str, str | None]:
    """Return bytes as text, where they are some, and in base64."""
    if data is None:
        return {"text": None, "base64": None}
    try:
        text: str | None = data.decode()
    except UnicodeDecodeError:
        text = None
    return {"text": text, "base64": base64.b64encode(data).decode()}


def _show(
    out: Output, row: Row, headers: Sequence[tuple[str, bytes | None]], failures: Sequence[Row]
) -> None:
    out.say(Text.assemble(f"letter {row['n']}  ", state_text(row["status"]), f"  {owner(row['scope'])}"))
    facts = [
        ("code", f"{row['code']} ({row['stage']}){'' if row['recoverable'] else ', cannot be redriven'}"),
        ("message", row["message"]),
        ("failed", _failed(row)),
        ("from", _origin(row)),
        ("event", f"{row['event_id']}{' of tenant ' + row['tenant'] if row['tenant'] else ''}"),
        ("behind it", _behind(row)),
        ("asked", f"by {row['asked_by']} at {rfc3339(row['asked_at'])}" if row["asked_at"] else ""),
        ("edited", _edited(row)),
        ("done", f"by {row['resolved_by']} at {rfc3339(row['resolved_at'])}" if row["resolved_at"] else ""),
    ]
    for name, text in facts:
        if text:
            out.hanging(Text(f"  {name:<10}"), clean(text))
    for failure in failures:
        text = (
            f"{failure['attempts']} tries, {rfc3339(failure['at'])}: {failure['code']} {failure['message']}"
        )
        out.hanging(Text("  earlier   "), clean(text))
    if row["key"] is not None:
        out.hanging(Text("  key       "), clean(words(row["key"], 200)))
    for name, value in headers:
        out.hanging(Text("  header    "), clean(f"{name}: {'null' if value is None else words(value, 200)}"))
    _value(out, row["value"])


def _failed(row: Row) -> str:
    last, first = row["last_failed_at"], row["first_failed_at"]
    text = f"{_tries(row['attempts'])}, last {span(row['now'] - last)} ago ({rfc3339(last)})"
    return text if first == last else f"{text}, first {span(row['now'] - first)} ago ({rfc3339(first)})"


def _tries(amount: int) -> str:
    return f"{amount} {'try' if amount == 1 else 'tries'}"


def _origin(row: Row) -> str:
    at = f", sent {rfc3339(row['sent_at'])}" if row["sent_at"] else ""
    if row["partition"] is None:
        return f"outbox row {row['seq']} for topic {row['topic']}{at}"
    return f"topic {row['topic']}, partition {row['partition']}, offset {row['offset']}{at}"


def _edited(row: Row) -> str:
    words = []
    if row["edit_of"] is not None:
        words.append(f"from letter {row['edit_of_n'] or row['edit_of']}")
    if row["edited_as"] is not None:
        words.append(f"as letter {row['edited_as_n'] or row['edited_as']}")
    return ", ".join(words)


def _behind(row: Row) -> str:
    if not row["behind"] or row["status"] not in LIVE:
        return ""
    numbers = ", ".join(str(n) for n in row["behind"][:10]) + (" …" if len(row["behind"]) > 10 else "")
    return f"letter {numbers} waits" if len(row["behind"]) == 1 else f"letters {numbers} wait"


def _value(out: Output, value: bytes | None) -> None:
    if value is None:
        out.say("  value     none (a tombstone)")
        return
    more = f", the first {SHOWN} shown; --payload FILE writes all" if len(value) > SHOWN else ""
    out.say(f"  value     {counted(len(value), 'byte')}{more}")
    out.hanging(Text("            "), clean(words(value[:SHOWN], SHOWN)))
