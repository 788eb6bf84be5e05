"""What whoever asks may see and do, as pages say it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ...recovery.permissions import Act, Actor, Permission, Scope, may_somewhere, permission, scope_of
from .permitting import refused
from .problems import Problem

#: Longest reason, in characters.
LONGEST_REASON = 4_000
#: Codes of acts that are forbidden, or have to be proposed.
NOT_PERMITTED = frozenset({"MP660", "MP664"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """An act as a page offers it; the fields are those of the macro `act`.

    Attributes:
        says: What follows.
        why_not: Why it cannot be done, '' when it can.
    """

    name: str
    label: str
    says: str = ""
    why_not: str = ""
    danger: bool = False
    asks: Collection[str] = ()
    second: str = ""


def seen(actor: Actor, act: Act) -> Scope:
    """Return what of a kind whoever asks may see.

    Args:
        act: The reading of it.

    Raises:
        Problem: 403, MP703 when nothing.
    """
    if not may_somewhere(actor, act):
        raise refused(actor, act)
    return scope_of(actor, act)


def may(actor: Actor, act: Act, tenant: str = "") -> bool:
    """Say whether an act about something of no saga may be done at once."""
    return permission(actor, act, tenant=tenant, saga=None) in {Permission.SAFE_REPAIR, Permission.READ_ONLY}


def offer(
    actor: Actor,
    act: Act,
    *,
    label: str,
    says: str = "",
    why_not: str = "",
    tenant: str | None = "",
    danger: bool = False,
) -> Offer:
    """Return an act as it is offered; one that is not granted says so before anything else.

    Args:
        tenant: Of what it is about; None where it is about several, each of which is looked at when it is done.
    """
    if not (may_somewhere(actor, act) if tenant is None else may(actor, act, tenant)):
        why_not = "Your roles do not allow it here; an administrator grants one that does."
    return Offer(name=act.value, label=label, says=says, why_not=why_not, danger=danger)


def require(actor: Actor, act: Act, tenant: str = "") -> None:
    """Hold that an act may be done.

    Raises:
        Problem: 403, MP703 when not.
    """
    if not may(actor, act, tenant):
        raise refused(actor, act)


def reason_of(reason: str) -> str:
    """Return a reason that a form gives.

    Raises:
        Problem: 422, MP779 without one.
    """
    text = reason.strip()
    if not text or len(text) > LONGEST_REASON or "\x00" in text:
        detail = (
            f"Say why, in 1 to {LONGEST_REASON:,} characters: it is kept in the audit. Nothing was changed."
        )
        raise Problem(422, "MP779", detail)
    return text
