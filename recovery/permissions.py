"""Who may do what: actors, what was granted to them, and what follows for one act.

Pure. What is not granted is forbidden, and a grant never takes anything away.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ..schemas.states import Risk


class ActorKind(StrEnum):
    """What acts: the service itself, somebody with a name, or a program that decides on its own account."""

    SYSTEM = "SYSTEM"
    PERSON = "PERSON"
    AGENT = "AGENT"


class Permission(StrEnum):
    """What an actor may do about one act.

    READ_ONLY: look, which changes nothing. SAFE_REPAIR: do it now. APPROVAL_REQUIRED: ask for it; it happens when
    another person has agreed. FORBIDDEN: neither.
    """

    READ_ONLY = "READ_ONLY"
    SAFE_REPAIR = "SAFE_REPAIR"
    APPROVAL_REQUIRED = "APPROVAL_REQUIRED"
    FORBIDDEN = "FORBIDDEN"


class Role(StrEnum):
    """What is granted. ADMIN has what VIEWER, OPERATOR and APPROVER have together, and settings."""

    VIEWER = "VIEWER"
    OPERATOR = "OPERATOR"
    APPROVER = "APPROVER"
    ADMIN = "ADMIN"
    AGENT = "AGENT"


class Act(StrEnum):
    """Everything that can be read or done. What begins with `read_` changes nothing."""

    READ_RUNS = "read_runs"
    READ_PAYLOAD = "read_payload"  # inputs, results, letters and events unmasked
    READ_LETTERS = "read_letters"
    READ_SIGNALS = "read_signals"
    READ_RESOURCES = "read_resources"
    READ_OUTBOX = "read_outbox"
    READ_REPLAYS = "read_replays"
    READ_AUDIT = "read_audit"
    READ_PROPOSALS = "read_proposals"
    READ_BULK = "read_bulk"
    READ_RUNBOOKS = "read_runbooks"
    READ_METRICS = "read_metrics"
    READ_SETTINGS = "read_settings"
    READ_PERMISSIONS = "read_permissions"

    RETRY = "retry"
    SKIP = "skip"
    MARK_SUCCEEDED = "mark_succeeded"
    COMPENSATE = "compensate"
    RESUME = "resume"
    CANCEL = "cancel"
    APPROVE = "approve"
    REJECT = "reject"
    MIGRATE = "migrate"
    REDRIVE = "redrive"
    IGNORE = "ignore"
    EDIT_LETTER = "edit_letter"
    UNPARK = "unpark"
    IGNORE_PARKED = "ignore_parked"
    REBASELINE = "rebaseline"
    RETRY_WEBHOOK = "retry_webhook"
    SETTLE_OPERATION = "settle_operation"
    REMOVE_ARTIFACTS = "remove_artifacts"
    REPLAY_DRY_RUN = "replay_dry_run"
    REPLAY_APPLY = "replay_apply"
    RECONCILE = "reconcile"
    RELEASE_LOCK = "release_lock"
    ROLL_BACK = "roll_back"
    PROPOSE = "propose"
    ACCEPT_PROPOSAL = "accept_proposal"
    REJECT_PROPOSAL = "reject_proposal"
    CONFIRM = "confirm"  # the second person's yes to an act of high consequence
    DECLINE = "decline"
    CONTROL_BULK = "control_bulk"  # pause, resume and stop of acts on many
    SAVE_FILTER = "save_filter"
    CHANGE_SETTINGS = "change_settings"
    CHANGE_PERMISSIONS = "change_permissions"

    @property
    def reads(self) -> bool:
        """Whether it changes nothing."""
        return self.value.startswith("read_")


_LOOK = frozenset(act for act in Act if act.reads) - {
    Act.READ_PAYLOAD,
    Act.READ_SETTINGS,
    Act.READ_PERMISSIONS,
}
_ANSWERS = frozenset(
    {Act.APPROVE, Act.REJECT, Act.ACCEPT_PROPOSAL, Act.REJECT_PROPOSAL, Act.CONFIRM, Act.DECLINE}
)
_ADMINS = frozenset({Act.REBASELINE, Act.REPLAY_APPLY, Act.REMOVE_ARTIFACTS, Act.CHANGE_SETTINGS})
_ADMINS |= {Act.CHANGE_PERMISSIONS}
_OPERATES = frozenset(act for act in Act if not act.reads) - _ANSWERS - _ADMINS
_KNOWS = frozenset({Act.READ_PAYLOAD, Act.READ_SETTINGS, Act.READ_PERMISSIONS})

_OF_ROLE: dict[Role, frozenset[Act]] = {
    Role.VIEWER: _LOOK | {Act.SAVE_FILTER},
    Role.OPERATOR: _LOOK | _KNOWS | _OPERATES,
    Role.APPROVER: _LOOK | _KNOWS | _ANSWERS | {Act.SAVE_FILTER},
    Role.ADMIN: frozenset(Act),
    Role.AGENT: _LOOK | {Act.PROPOSE},
}

#: What changes nothing that could not be done again: repeated under the same key, or only looked at once more.
SAFE_ACTS = frozenset({Act.RETRY, Act.RESUME, Act.REDRIVE, Act.UNPARK, Act.RECONCILE, Act.REPLAY_DRY_RUN})
#: Where nobody but a person counts: a machine that approves is no approval.
PERSONS_ONLY = _ANSWERS | _ADMINS
#: Acts whose consequence is that of the run or step they are about: CRITICAL ones need a second person.
RISKY_ACTS = frozenset(
    {Act.RETRY, Act.SKIP, Act.MARK_SUCCEEDED, Act.COMPENSATE, Act.RESUME, Act.CANCEL, Act.MIGRATE}
) | {Act.RELEASE_LOCK, Act.ROLL_BACK}
#: What everybody who may act at all may do by himself: it changes nothing but a note of his own.
_NOTES = frozenset({Act.PROPOSE, Act.SAVE_FILTER})


@dataclass(frozen=True, slots=True)
class Grant:
    """One role, where it holds.

    Attributes:
        tenants: Names of tenants, '' for none; None for all.
        sagas: Names of sagas; None for all, and for what belongs to no saga.
    """

    role: Role
    tenants: frozenset[str] | None = None
    sagas: frozenset[str] | None = None

    def holds(self, tenant: str, saga: str | None) -> bool:
        """Say whether it holds for something of that tenant and saga; saga None: it belongs to none."""
        here = self.tenants is None or tenant in self.tenants
        return here and (self.sagas is None or saga in self.sagas)


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts.

    Attributes:
        name: As it stands in the audit.
    """

    name: str
    kind: ActorKind
    grants: tuple[Grant, ...]

    def roles(self, tenant: str, saga: str | None) -> frozenset[Role]:
        """Return the roles that hold for something of that tenant and saga."""
        return frozenset(grant.role for grant in self.grants if grant.holds(tenant, saga))


@dataclass(frozen=True, slots=True)
class Scope:
    """What may be seen: what is of one of these tenants and of one of these sagas.

    Attributes:
        tenants: None for all.
        sagas: None for all, and for what belongs to no saga.
    """

    tenants: frozenset[str] | None = None
    sagas: frozenset[str] | None = None

    def allows(self, tenant: str, saga: str | None) -> bool:
        """Say whether something of that tenant and saga may be seen; saga None: it belongs to none."""
        here = self.tenants is None or tenant in self.tenants
        return here and (self.sagas is None or saga in self.sagas)

    def parameters(self) -> tuple[list[str] | None, list[str] | None]:
        """Return tenants and sagas as a query takes them, sorted; None for all."""
        return (
            None if self.tenants is None else sorted(self.tenants),
            None if self.sagas is None else sorted(self.sagas),
        )


EVERYTHING, NOTHING = Scope(), Scope(frozenset(), frozenset())


def permission(
    actor: Actor, act: Act, *, tenant: str, saga: str | None, risk: Risk | None = None
) -> Permission:
    """Say what an actor may do about an act.

    Args:
        tenant: Of what the act is about, '' for none.
        saga: Of the run; None for what belongs to no saga, for which a grant for some sagas does not hold.
        risk: Of the run or step, where the act is about one; None where it is not known.

    Returns:
        FORBIDDEN for what no grant allows. Else READ_ONLY for what reads. What changes something is SAFE_REPAIR, or
        APPROVAL_REQUIRED: a person's or the system's for CRITICAL risk, and an agent's always but for a safe act of
        known LOW risk that a grant beside AGENT allows.
    """
    roles = actor.roles(tenant, saga)
    allowed = any(act in _OF_ROLE[role] for role in roles)
    if actor.kind is ActorKind.AGENT:
        return _of_agent(act, roles, allowed=allowed, risk=risk)
    if not allowed or (act in PERSONS_ONLY and actor.kind is not ActorKind.PERSON):
        return Permission.FORBIDDEN
    if act.reads:
        return Permission.READ_ONLY
    if risk is Risk.CRITICAL and act in RISKY_ACTS:
        return Permission.APPROVAL_REQUIRED
    return Permission.SAFE_REPAIR


def _of_agent(act: Act, roles: frozenset[Role], *, allowed: bool, risk: Risk | None) -> Permission:
    if act in PERSONS_ONLY:
        return Permission.FORBIDDEN
    if act.reads or act in _NOTES:
        kind = Permission.READ_ONLY if act.reads else Permission.SAFE_REPAIR
        return kind if allowed else Permission.FORBIDDEN
    if allowed and act in SAFE_ACTS and risk is Risk.LOW:
        return Permission.SAFE_REPAIR
    return Permission.APPROVAL_REQUIRED if allowed or Role.AGENT in roles else Permission.FORBIDDEN


def may_somewhere(actor: Actor, act: Act) -> bool:
    """Say whether the act is not FORBIDDEN for some tenant and saga: to show a page or a button at all."""
    for grant in actor.grants:
        tenants = grant.tenants if grant.tenants is not None else frozenset({""})
        sagas: frozenset[str | None] = (
            frozenset({None}) if grant.sagas is None else frozenset[str | None](grant.sagas)
        )
        for tenant in tenants:
            if any(
                permission(actor, act, tenant=tenant, saga=saga) is not Permission.FORBIDDEN for saga in sagas
            ):
                return True
    return False


def scope_of(actor: Actor, act: Act = Act.READ_RUNS) -> Scope:
    """Return what an actor may see.

    Args:
        act: What is to be done with what is seen; by default reading runs, which every role may.

    Returns:
        One product of tenants and sagas that lies within the grants, never wider: where grants name different tenants
        and different sagas, their union is no product, and the largest part that is one is returned.
    """
    grants = [g for g in actor.grants if _for(actor, act, g)]
    if not grants:
        return NOTHING
    widest = NOTHING
    for base in grants:
        # All tenants of base with every saga that is granted for them, and all sagas of base with every such tenant.
        sagas = [g.sagas for g in grants if _covers(g.tenants, base.tenants)]
        tenants = [g.tenants for g in grants if _covers(g.sagas, base.sagas)]
        for found in (Scope(base.tenants, _union(sagas)), Scope(_union(tenants), base.sagas)):
            widest = max(widest, found, key=_width)
    return widest


def _for(actor: Actor, act: Act, grant: Grant) -> bool:
    if actor.kind is not ActorKind.PERSON and act in PERSONS_ONLY:
        return False
    return act in _OF_ROLE[grant.role]


def _covers(wide: frozenset[str] | None, narrow: frozenset[str] | None) -> bool:
    return wide is None or (narrow is not None and narrow <= wide)


def _union(sets: list[frozenset[str] | None]) -> frozenset[str] | None:
    every = frozenset[str]()
    for one in sets:
        if one is None:
            return None
        every |= one
    return every


def _width(scope: Scope) -> tuple[float, float, list[str], list[str]]:
    tenants, sagas = scope.parameters()
    counts = [float("inf") if names is None else float(len(names)) for names in (tenants, sagas)]
    if 0.0 in counts:
        return (0.0, 0.0, [], [])
    return (max(counts), min(counts), tenants or [], sagas or [])
