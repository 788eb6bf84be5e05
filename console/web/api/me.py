"""Who asks, and what may be done."""

from __future__ import annotations

from fastapi import APIRouter, Request
from pydantic import BaseModel

from ....recovery.permissions import Act, ActorKind, Role, may_somewhere
from ..identity import Signed
from ..identity.model import Way

router = APIRouter(tags=["me"])


class Granted(BaseModel):
    """A role, and where it holds; null: everywhere."""

    role: Role
    tenants: list[str] | None
    sagas: list[str] | None


class Me(BaseModel):
    """Whoever asks.

    Attributes:
        way: How this was shown: TOKEN, OIDC, LINK or PROXY.
        acts: What is granted somewhere, at once or with another person's yes.
        csrf: For programs that use a session: the header X-CSRF-Token of writes. Null with a token.
    """

    name: str
    kind: ActorKind
    way: Way
    grants: list[Granted]
    acts: list[Act]
    csrf: str | None


@router.get("/me")
async def me(request: Request, actor: Signed) -> Me:
    """Tell who asks, and what was granted."""
    caller = request.state.caller
    return Me(
        name=actor.name,
        kind=actor.kind,
        way=caller.way,
        grants=[
            Granted(
                role=grant.role,
                tenants=None if grant.tenants is None else sorted(grant.tenants),
                sagas=None if grant.sagas is None else sorted(grant.sagas),
            )
            for grant in actor.grants
        ],
        acts=[act for act in Act if may_somewhere(actor, act)],
        csrf=caller.csrf,
    )
