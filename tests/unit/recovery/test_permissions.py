"""Who may do what: nothing by default, more with every grant, and no machine ever approves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from milepost.recovery.permissions import (
    NOTHING,
    PERSONS_ONLY,
    RISKY_ACTS,
    SAFE_ACTS,
    Act,
    Actor,
    ActorKind,
    Grant,
    Permission,
    Role,
    Scope,
    may_somewhere,
    permission,
    scope_of,
)
from milepost.schemas.states import Risk

NAMES = st.sampled_from(["", "a", "b"])
SETS = st.none() | st.frozensets(st.sampled_from(["", "a", "b"]), max_size=2)
GRANTS = st.builds(Grant, st.sampled_from(Role), SETS, SETS)
ACTS, KINDS, RISKS = st.sampled_from(Act), st.sampled_from(ActorKind), st.none() | st.sampled_from(Risk)
#: From nothing to everything.
ORDER = [Permission.FORBIDDEN, Permission.APPROVAL_REQUIRED, Permission.SAFE_REPAIR, Permission.READ_ONLY]


def one(role: Role, kind: ActorKind = ActorKind.PERSON) -> Actor:
    return Actor("ann", kind, (Grant(role),))


@given(KINDS, ACTS, NAMES, st.none() | NAMES, RISKS)
def test_what_is_not_granted_is_forbidden(
    kind: ActorKind, act: Act, tenant: str, saga: str | None, risk: Risk | None
) -> None:
    nobody = Actor("ann", kind, ())
    assert permission(nobody, act, tenant=tenant, saga=saga, risk=risk) is Permission.FORBIDDEN
    assert not may_somewhere(nobody, act)
    assert scope_of(nobody) == NOTHING


@given(KINDS, st.lists(GRANTS, max_size=3), GRANTS, ACTS, NAMES, st.none() | NAMES, RISKS)
def test_one_more_grant_never_takes_anything_away(
    kind: ActorKind,
    grants: list[Grant],
    more: Grant,
    act: Act,
    tenant: str,
    saga: str | None,
    risk: Risk | None,
) -> None:
    before = permission(Actor("x", kind, tuple(grants)), act, tenant=tenant, saga=saga, risk=risk)
    after = permission(Actor("x", kind, (*grants, more)), act, tenant=tenant, saga=saga, risk=risk)
    assert ORDER.index(after) >= ORDER.index(before)


@given(st.lists(GRANTS, max_size=4), ACTS, NAMES, st.none() | NAMES, RISKS)
def test_an_agent_does_at_most_safe_repairs(
    grants: list[Grant], act: Act, tenant: str, saga: str | None, risk: Risk | None
) -> None:
    agent = Actor("bot", ActorKind.AGENT, tuple(grants))
    found = permission(agent, act, tenant=tenant, saga=saga, risk=risk)
    if found is Permission.SAFE_REPAIR:
        assert act in {Act.PROPOSE, Act.SAVE_FILTER} or (act in SAFE_ACTS and risk is Risk.LOW)
    if act in PERSONS_ONLY:
        assert found is Permission.FORBIDDEN


@given(KINDS, st.lists(GRANTS, max_size=4), ACTS, NAMES, st.none() | NAMES)
def test_what_may_be_seen_is_never_wider_than_what_was_granted(
    kind: ActorKind, grants: list[Grant], act: Act, tenant: str, saga: str | None
) -> None:
    actor = Actor("x", kind, tuple(grants))
    if scope_of(actor, act).allows(tenant, saga):
        assert permission(actor, act, tenant=tenant, saga=saga) is not Permission.FORBIDDEN
    for grant in grants:  # and as long as there is one shape, it is all of it
        alone = Actor("x", kind, (grant,))
        granted = permission(alone, Act.READ_RUNS, tenant=tenant, saga=saga) is Permission.READ_ONLY
        assert scope_of(alone).allows(tenant, saga) == granted


def test_grants_that_differ_in_one_thing_are_seen_whole() -> None:
    actor = Actor(
        "x",
        ActorKind.PERSON,
        (Grant(Role.VIEWER, None, frozenset({"a"})), Grant(Role.OPERATOR, None, frozenset({"b"}))),
    )
    assert scope_of(actor) == Scope(None, frozenset({"a", "b"}))
    assert scope_of(actor, Act.RETRY) == Scope(None, frozenset({"b"}))
    mixed = Actor(
        "x",
        ActorKind.PERSON,
        (
            Grant(Role.VIEWER, frozenset({"t1"}), frozenset({"a"})),
            Grant(Role.VIEWER, frozenset({"t2"}), frozenset({"b"})),
        ),
    )
    assert not scope_of(mixed).allows("t1", "b")
    assert not scope_of(mixed).allows("t2", "a")


@pytest.mark.parametrize("act", sorted(RISKY_ACTS))
def test_what_is_critical_needs_a_second_person(act: Act) -> None:
    for kind in (ActorKind.PERSON, ActorKind.SYSTEM):
        found = permission(one(Role.ADMIN, kind), act, tenant="", saga="order", risk=Risk.CRITICAL)
        assert found is Permission.APPROVAL_REQUIRED
        assert permission(one(Role.ADMIN, kind), act, tenant="", saga="order", risk=Risk.HIGH) is (
            Permission.SAFE_REPAIR
        )


def test_each_role_has_its_acts() -> None:
    def may(role: Role, act: Act) -> bool:
        return permission(one(role), act, tenant="", saga=None) is not Permission.FORBIDDEN

    assert {act for act in Act if may(Role.ADMIN, act)} == set(Act)
    assert not any(may(Role.VIEWER, act) for act in Act if not act.reads and act is not Act.SAVE_FILTER)
    assert not may(Role.VIEWER, Act.READ_PAYLOAD)
    assert may(Role.OPERATOR, Act.RETRY)
    assert not may(Role.OPERATOR, Act.APPROVE)
    assert not may(Role.OPERATOR, Act.CHANGE_SETTINGS)
    assert may(Role.APPROVER, Act.APPROVE)
    assert not may(Role.APPROVER, Act.RETRY)
    for kind in (ActorKind.SYSTEM, ActorKind.AGENT):
        assert permission(one(Role.ADMIN, kind), Act.CONFIRM, tenant="", saga=None) is Permission.FORBIDDEN


def test_an_agent_reads_and_proposes_and_asks() -> None:
    agent = one(Role.AGENT, ActorKind.AGENT)
    assert permission(agent, Act.READ_RUNS, tenant="", saga="order") is Permission.READ_ONLY
    assert permission(agent, Act.READ_PAYLOAD, tenant="", saga="order") is Permission.FORBIDDEN
    assert permission(agent, Act.PROPOSE, tenant="", saga="order") is Permission.SAFE_REPAIR
    low = permission(agent, Act.RETRY, tenant="", saga="order", risk=Risk.LOW)
    assert low is Permission.APPROVAL_REQUIRED
    trusted = Actor("bot", ActorKind.AGENT, (Grant(Role.OPERATOR),))
    assert permission(trusted, Act.RETRY, tenant="", saga="o", risk=Risk.LOW) is Permission.SAFE_REPAIR
    assert permission(trusted, Act.RETRY, tenant="", saga="o") is Permission.APPROVAL_REQUIRED
    assert permission(trusted, Act.SKIP, tenant="", saga="o", risk=Risk.LOW) is Permission.APPROVAL_REQUIRED


def test_a_grant_for_one_saga_says_nothing_of_what_belongs_to_none() -> None:
    actor = Actor("x", ActorKind.PERSON, (Grant(Role.OPERATOR, None, frozenset({"order"})),))
    assert permission(actor, Act.RETRY, tenant="", saga="order") is Permission.SAFE_REPAIR
    assert permission(actor, Act.RETRY, tenant="", saga="other") is Permission.FORBIDDEN
    assert permission(actor, Act.REDRIVE, tenant="", saga=None) is Permission.FORBIDDEN
