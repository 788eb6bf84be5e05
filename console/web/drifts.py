"""What has drifted, as whoever asks may see it and have it repaired."""

from __future__ import annotations

from ...recovery.executor import Connection, Executor
from ...recovery.model import Drift, Observation, Reconciled
from ...recovery.passing import Pass
from ...recovery.permissions import Act, Actor, Permission, permission
from .parts import Parts
from .problems import Problem

#: Most drifts that are shown as they are now, and repaired at once.
NOW = 100


#: What a page says where what services inspect cannot be looked at.
NO_APP = (
    "This console was told of no application (MILEPOST_APP): default policies hold, and what services inspect, desired "
    "against actual, is not looked at here."
)


def looking(
    own: Parts, connection: Connection, executor: Executor, drift: Drift | None, *, asked: bool = False
) -> Pass:
    """Return a pass over everything, or over drifts of one kind.

    Args:
        asked: Somebody wants it done now, who has named the kind: probes of unknown outcomes do not wait their time.
    """
    return Pass(
        connection, own.policies, executor, most=NOW, only=drift, asked=asked and drift is Drift.UNKNOWN
    )


async def inspected(
    own: Parts, connection: Connection, executor: Executor, actor: Actor
) -> tuple[list[Reconciled], list[str]]:
    """Look at what the application inspects, and carry out what follows where the actor may.

    Returns:
        What differs, and the names of what could not be looked at.
    """
    from ...consumers.inspecting import inspect_all

    if own.service is None:
        return [], []
    return await inspect_all(own.service, connection, executor, lambda one: mine(actor, one, Act.RECONCILE))


def mine(actor: Actor, one: Observation, act: Act) -> bool:
    """Whether whoever asks may do this about a drift of that tenant and saga."""
    allowed = permission(actor, act, tenant=one.tenant, saga=one.saga)
    return allowed in {Permission.READ_ONLY, Permission.SAFE_REPAIR}


def drift_named(name: str) -> Drift:
    """Return a drift by its name, in any case.

    Raises:
        Problem: 404, MP709.
    """
    try:
        return Drift(name.upper().replace("-", "_"))
    except ValueError as error:
        known = ", ".join(one.value for one in Drift)
        raise Problem(404, "MP709", f"There is no such drift. There are: {known}.") from error
