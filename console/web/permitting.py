"""What a route needs: an act that whoever asks may do somewhere. Where exactly is decided where the thing is known."""

from __future__ import annotations

from typing import Any

from fastapi import Depends, Request

from ...recovery.acting import Attempt, keep_refusal
from ...recovery.permissions import Act, Actor, Permission, may_somewhere, permission
from .identity import signed_in
from .identity.recognising import connected
from .parts import parts
from .problems import Problem


class Needs:
    """A dependency that refuses whoever may do none of the acts anywhere; the audit keeps it of what changes something.

    Attributes:
        acts: What is done there; tests read which route needs what.
    """

    def __init__(self, *acts: Act) -> None:
        self.acts = acts

    async def __call__(self, request: Request) -> Actor:
        """Return who asks.

        Raises:
            Problem: 403, MP703.
        """
        actor = await signed_in(request)
        if not any(may_somewhere(actor, act) for act in self.acts):
            problem = refused(actor, *self.acts)
            if not self.acts[0].reads:
                await _keep(request, actor, self.acts[0], problem)
            raise problem
        return actor


async def _keep(request: Request, actor: Actor, act: Act, problem: Problem) -> None:
    evidence = {"path": request.url.path[:500]}
    attempt = Attempt(act=act, name=f"console.{act.value}", reason="none was read", evidence=evidence)
    own = parts(request)
    async with connected(own.database) as connection:
        await keep_refusal(connection, actor, attempt, problem.detail, ids=own.ids)


def needs(*acts: Act) -> Any:
    """Return the dependency of a route: `dependencies=[needs(Act.READ_RUNS)]`; of several acts one is enough."""
    return Depends(Needs(*acts))


def refused(actor: Actor, *acts: Act) -> Problem:
    """Make the problem of acts that were not granted."""
    words = " or ".join(act.value.replace("_", " ") for act in acts)
    detail = f"{actor.name} may not {words} here. An admin grants it: `milepost access add` or `milepost tokens add`."
    return Problem(403, "MP703", detail)


def may(actor: Actor, act: Act, *, tenant: str, saga: str | None) -> bool:
    """Say whether an act is granted for something of that tenant and saga, at once or with another person's yes."""
    return permission(actor, act, tenant=tenant, saga=saga) is not Permission.FORBIDDEN
