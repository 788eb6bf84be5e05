"""Who asks, and what that identity may do. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import UUID

from ....recovery.permissions import Actor, ActorKind, Grant, Role
from ..settings import GroupGrant

#: The group that everybody is in who has signed in.
EVERYBODY = "*"
#: Longest name of an identity, in characters; the audit takes as much.
LONGEST_NAME = 200
#: What a person has who signs in by the link that the console printed: whoever can start it has the database.
LOCAL = (Grant(Role.ADMIN),)


class Way(StrEnum):
    """How somebody has said who it is."""

    TOKEN = "TOKEN"
    OIDC = "OIDC"
    LINK = "LINK"
    PROXY = "PROXY"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who makes a request.

    Attributes:
        csrf: What a form, or the header X-CSRF-Token, has to hold; None where no browser sends the proof of who asks
            by itself.
        session: The session's digest, where there is one.
        groups: Those that the provider or the proxy told, or that whoever started the console here claims; an approval
            may ask for one of them.
    """

    actor: Actor
    way: Way
    csrf: str | None = None
    session: bytes | None = None
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedIn:
    """What a session keeps of whoever signed in.

    Attributes:
        groups: Those that the provider told, or the roles that whoever started the console claims.
        token: The token that was shown, for a session that ends with it.
    """

    name: str
    kind: ActorKind
    way: Way
    groups: Sequence[str] = ()
    token: UUID | None = None


def name_problem(name: object) -> str | None:
    """Say what is wrong with the name of an identity; None for one that the audit can keep."""
    if not isinstance(name, str) or not name.strip():
        return "it is empty"
    if len(name) > LONGEST_NAME:
        return f"it has more than {LONGEST_NAME} characters"
    if not name.isprintable() or name != name.strip():
        return "it has characters that cannot be seen, or begins or ends with a space"
    return None


def grants_json(grants: Iterable[Grant]) -> str:
    """Write grants as the database keeps them."""
    return json.dumps(
        [
            {
                "role": grant.role.value,
                "tenants": None if grant.tenants is None else sorted(grant.tenants),
                "sagas": None if grant.sagas is None else sorted(grant.sagas),
            }
            for grant in grants
        ]
    )


def read_grants(text: str | None) -> tuple[Grant, ...]:
    """Read grants as the database keeps them; a role that this version does not know gives nothing."""
    known = {role.value for role in Role}
    return tuple(_grant(item) for item in json.loads(text or "[]") if item["role"] in known)


def grants_of_groups(groups: Iterable[str], mapping: Iterable[GroupGrant]) -> tuple[Grant, ...]:
    """Return what the groups of an identity may do, as the settings say."""
    own = {*groups, EVERYBODY}
    return tuple(item.grant for item in mapping if item.group in own)


def _grant(item: Mapping[str, Any]) -> Grant:
    tenants, sagas = item.get("tenants"), item.get("sagas")
    return Grant(
        Role(item["role"]),
        None if tenants is None else frozenset(tenants),
        None if sagas is None else frozenset(sagas),
    )
