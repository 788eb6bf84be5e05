"""`milepost tokens` and `milepost access`: who may use the console, and for what."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import asyncpg

from ..recovery.permissions import ActorKind, Role
from ..schemas.errors import StateError, UsageError
from ..schemas.ids import SystemIds
from ..schemas.settings import parse_duration
from ..streams.queries import Queries
from .options import Globals
from .output import clean, column
from .store import changing
from .unpark import require_reason

#: What a token begins with, so that it is known for one wherever it turns up.
TOKEN_PREFIX = "mpt_"
#: How long a token may hold at most.
LONGEST = timedelta(days=400)
_NAME = 200
_IDS = SystemIds()


class Sql(Queries, file="tokens.sql"):
    """Queries of these commands."""

    add_token: str
    tokens: str
    find_tokens: str
    revoke_token: str
    add_grant: str
    grants: str
    find_grants: str
    revoke_grant: str


async def add_token(
    given: Globals,
    name: str,
    roles: Sequence[str],
    *,
    tenants: Sequence[str],
    sagas: Sequence[str],
    expires: str,
    reason: str,
) -> None:
    """Make a token and print it: it is shown this once.

    Raises:
        UsageError: MP601 without a reason, MP718 for a name, a role or a time that cannot be.
    """
    require_reason(reason)
    known = _name(name), _roles(roles), _lasts(expires)
    kind = ActorKind.AGENT if Role.AGENT in known[1] else ActorKind.PERSON
    where = {"tenants": list(tenants) or None, "sagas": list(sagas) or None}
    grants = json.dumps([{"role": role.value, **where} for role in known[1]])
    secret = TOKEN_PREFIX + secrets.token_urlsafe(32)
    hashed = hashlib.sha256(secret.encode()).digest()
    made = _IDS.new()
    async with changing(given.database_url()) as connection:
        until = await connection.fetchval(
            Sql.add_token,
            *(made, known[0], kind.value, hashed, grants, given.by(), known[2], _IDS.new(), reason.strip()),
        )
    given.out.item(token=secret, id=made, name=known[0], kind=kind.value, expires_at=until)
    given.out.say(secret)
    given.out.note(f"This is {known[0]}'s token until {until:%Y-%m-%d}. It is kept nowhere: store it now.")


async def list_tokens(given: Globals) -> None:
    """Print tokens, the youngest first; never what they are."""
    async with changing(given.database_url()) as connection:
        rows = await connection.fetch(Sql.tokens)
    for row in rows:
        given.out.item(**{**row, "grants": json.loads(row["grants"])})
    heads = [column(head) for head in ("id", "name", "may", "state", "until", "last used")]
    given.out.table(heads, [_token_line(row) for row in rows])
    if not rows:
        given.out.say("no tokens")


async def revoke_tokens(given: Globals, name: str, *, reason: str) -> None:
    """Revoke a token, named by its id, or all of a name; sessions that they opened end too.

    Raises:
        UsageError: MP601 without a reason.
        StateError: MP719 when there is none.
    """
    await _revoke(given, name, reason, find=Sql.find_tokens, end=Sql.revoke_token, noun="token")


async def add_access(
    given: Globals,
    name: str,
    roles: Sequence[str],
    *,
    tenants: Sequence[str],
    sagas: Sequence[str],
    reason: str,
) -> None:
    """Let somebody do something whom a provider or a proxy vouches for.

    Raises:
        UsageError: MP601 without a reason, MP718 for a name or role that cannot be.
    """
    require_reason(reason)
    known, own = _name(name), _roles(roles)
    if Role.AGENT in own:
        raise UsageError("MP718", "--role agent is for tokens: no provider vouches for a program.")
    async with changing(given.database_url()) as connection, connection.transaction():
        for role in own:
            made = _IDS.new()
            await connection.execute(
                Sql.add_grant,
                *(made, known, role.value, list(tenants) or None, list(sagas) or None, given.by()),
                *(_IDS.new(), reason.strip()),
            )
            given.out.item(id=made, name=known, role=role.value)
            given.out.say(f"{known} may act as {role.value.lower()}{_where(tenants, sagas)}")


async def list_access(given: Globals) -> None:
    """Print what names may do."""
    async with changing(given.database_url()) as connection:
        rows = await connection.fetch(Sql.grants)
    for row in rows:
        given.out.item(**row)
    heads = [column(head) for head in ("id", "name", "may", "by", "since")]
    lines = [
        (
            str(row["id"]),
            clean(row["name"]),
            row["role"].lower() + _where(row["tenants"] or (), row["sagas"] or ()),
            clean(row["by"]),
            f"{row['since']:%Y-%m-%d}",
        )
        for row in rows
    ]
    given.out.table(heads, lines)
    if not rows:
        given.out.say("no grants; groups may have some in MILEPOST_CONSOLE_GRANTS")


async def revoke_access(given: Globals, name: str, *, reason: str) -> None:
    """Take back a grant, named by its id, or all of a name.

    Raises:
        UsageError: MP601 without a reason.
        StateError: MP719 when there is none.
    """
    await _revoke(given, name, reason, find=Sql.find_grants, end=Sql.revoke_grant, noun="grant")


async def _revoke(given: Globals, name: str, reason: str, *, find: str, end: str, noun: str) -> None:
    require_reason(reason)
    async with changing(given.database_url()) as connection, connection.transaction():
        rows = await connection.fetch(find, name)
        done = [row for row in rows if await _ended(connection, end, row, given.by(), reason)]
    if not done:
        raise StateError(
            "MP719", f"{name}: there is no such {noun} that holds. `list` shows those there are."
        )
    for row in done:
        given.out.item(id=row["id"], name=row["name"], revoked=True)
        given.out.say(f"{noun} {row['id']} of {clean(row['name'])} revoked")


async def _ended(connection: asyncpg.Connection[Any], end: str, row: Any, by: str, reason: str) -> bool:
    return bool(await connection.fetchval(end, row["id"], _IDS.new(), by, reason.strip()))


def _name(text: str) -> str:
    if not text.strip() or len(text) > _NAME or not text.isprintable() or text != text.strip():
        raise UsageError(
            "MP718", f"NAME {text[:40]!r} is none: 1 to {_NAME} visible characters, without spaces around."
        )
    return text


def _roles(texts: Sequence[str]) -> list[Role]:
    found = []
    for text in texts:
        try:
            found.append(Role(text.strip().upper()))
        except ValueError:
            known = ", ".join(role.value.lower() for role in Role)
            raise UsageError("MP718", f"--role {text}: there is no such role. There are: {known}.") from None
    return list(dict.fromkeys(found))


def _lasts(text: str) -> timedelta:
    with suppress(ValueError):
        lasts = parse_duration(text)
        if isinstance(lasts, timedelta) and timedelta(0) < lasts <= LONGEST:
            return lasts
    raise UsageError("MP718", f"--expires {text}: say how long, such as 12h or 90d, at most {LONGEST.days}d.")


def _where(tenants: Sequence[str], sagas: Sequence[str]) -> str:
    own = [
        f"of {word} {', '.join(map(clean, names))}"
        for word, names in (("tenant", tenants), ("saga", sagas))
        if names
    ]
    return f" {' '.join(own)}" if own else ""


def _token_line(row: Any) -> tuple[str, ...]:
    grants = json.loads(row["grants"])
    may = ", ".join(grant["role"].lower() for grant in grants)
    where = _where(grants[0]["tenants"] or (), grants[0]["sagas"] or ()) if grants else ""
    used = f"{row['used_at']:%Y-%m-%d %H:%MZ}" if row["used_at"] else "never"
    return (
        str(row["id"]),
        clean(row["name"]),
        may + where,
        row["state"],
        f"{row['expires_at']:%Y-%m-%d}",
        used,
    )
