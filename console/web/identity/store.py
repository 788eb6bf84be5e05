"""Sessions, tokens and grants in the database."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, TypeAlias

import asyncpg

from ....recovery.permissions import Actor, ActorKind, Grant
from ....streams.queries import Queries
from ..settings import GroupGrant
from .model import SignedIn, Way, grants_of_groups, read_grants
from .signing import digest_of, new_secret

Connection: TypeAlias = "asyncpg.Connection[Any]"
#: What a token begins with, so that it is known for one wherever it turns up.
TOKEN_PREFIX = "mpt_"


class Sql(Queries, file="identity.sql"):
    """Queries of identities."""

    open_session: str
    find_session: str
    end_session: str
    forget_sessions: str
    find_token: str
    note_use: str
    access: str
    usable_tokens: str
    ready: str


async def open_session(connection: Connection, who: SignedIn, lasts: timedelta) -> str:
    """Open a session, and forget those that have ended.

    Returns:
        The session's secret, for its cookie.
    """
    secret = new_secret()
    async with connection.transaction():
        await connection.execute(Sql.forget_sessions)
        values = (who.name, who.kind.value, who.way.value, list(who.groups), who.token, lasts)
        await connection.execute(Sql.open_session, digest_of(secret), *values)
    return secret


async def end_session(connection: Connection, digest: bytes) -> None:
    """End a session; one that has ended stays ended."""
    await connection.execute(Sql.end_session, digest)


async def find_session(
    connection: Connection, digest: bytes, mapping: tuple[GroupGrant, ...], local: tuple[Grant, ...]
) -> tuple[Actor, Way, tuple[str, ...]] | None:
    """Return whose session this is, with what that identity may do now, how, and its groups; None when it has ended.

    Args:
        mapping: What groups may do.
        local: What a person may do who came by the printed link.
    """
    row = await connection.fetchrow(Sql.find_session, digest)
    if row is None:
        return None
    way = Way(row["way"])
    if way is Way.TOKEN:
        grants = read_grants(row["token_grants"])
    elif way is Way.LINK:
        grants = local
    else:
        grants = grants_of_groups(row["groups"], mapping) + read_grants(row["access"])
    return Actor(row["name"], ActorKind(row["kind"]), grants), way, tuple(row["groups"])


async def find_token(connection: Connection, secret: str) -> tuple[SignedIn, Actor] | None:
    """Return whose token this is; None for one that is unknown, revoked or over."""
    if not secret.startswith(TOKEN_PREFIX):
        return None
    row = await connection.fetchrow(Sql.find_token, digest_of(secret))
    if row is None:
        return None
    await connection.execute(Sql.note_use, row["id"])
    kind = ActorKind(row["kind"])
    who = SignedIn(name=row["name"], kind=kind, way=Way.TOKEN, token=row["id"])
    return who, Actor(row["name"], kind, read_grants(row["grants"]))


async def access_of(connection: Connection, name: str) -> tuple[Grant, ...]:
    """Return what the table of grants lets a name do."""
    return read_grants(await connection.fetchval(Sql.access, name))


async def usable_tokens(connection: Connection) -> int:
    """Count the tokens that would be taken now."""
    return int(await connection.fetchval(Sql.usable_tokens))
