"""Single things: what may not be seen is answered as what is not there, and the audit keeps who tried."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import asyncpg

from ...recovery.acting import Attempt, keep_refusal
from ...recovery.permissions import Act, Actor, Permission, Scope, permission
from ..views.whose import Thing, Whose, whose
from .problems import Problem


async def seen(
    connection: asyncpg.Connection[Any],
    actor: Actor,
    look: Act,
    thing: Thing,
    name: UUID | int,
    *,
    doing: Act | None = None,
) -> tuple[Whose, Scope]:
    """Return whose something is, and the scope that holds just that.

    Args:
        look: The act of reading it.
        doing: What is to be done with it, for the audit; whether that is permitted is decided where it is done.

    Raises:
        Problem: 404, MP710 where there is none, or the actor may not see it; the latter is kept in the audit.
    """
    found = await whose(connection, thing, name)
    if found is not None and may_see(actor, look, found):
        return found, Scope(
            frozenset({found.tenant}), None if found.saga is None else frozenset({found.saga})
        )
    if found is not None:
        act = doing or look
        attempt = Attempt(
            act=act,
            name=f"{thing}.{act.value}",
            reason="asked for over HTTP",
            tenant=found.tenant,
            saga=found.saga,
            run=found.run,
            evidence={thing: str(name)},
        )
        await keep_refusal(
            connection, actor, attempt, f"{actor.name} may not see what is of that tenant and saga"
        )
    raise Problem(404, "MP710", f"There is no {thing} {name}, or none that you may see.")


def may_see(actor: Actor, look: Act, found: Whose) -> bool:
    """Say whether an actor has anything to do with something of that tenant and saga."""
    return permission(actor, look, tenant=found.tenant, saga=found.saga) is not Permission.FORBIDDEN
