"""What a service looks at itself: things outside of Milepost, each as it should be and as it is.

The function that looks only reads. What follows is its policy's, and a repair is a run of a saga that is started in the
transaction which records it: durable, undone where it fails, seen by everybody, begun once however often it is found.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from pydantic import BaseModel

from ..sagas.definition import text_problem
from ..sagas.model import Json
from ..sagas.saga import Saga
from ..schemas.errors import DefinitionError
from ..schemas.states import Level
from .model import CAN, Action, Drift, Observation, Plan
from .policies import escalate, nothing, settled

M = TypeVar("M", bound=BaseModel)
J = TypeVar("J", bound=BaseModel)
T = TypeVar("T")

#: Most characters of the name of an inspection and of a key.
LONGEST_NAME, LONGEST_KEY = 60, 200
#: Most bytes of JSON of one state that are kept with a decision.
LONGEST_STATE = 8_192
#: Shortest time between two looks.
SHORTEST = timedelta(seconds=1)


class Looking(Protocol):
    """What a function that inspects is given."""

    def use(self, kind: type[T], /) -> T:
        """Return the client that the service provides for a class."""
        ...


@dataclass(frozen=True, kw_only=True)
class Compared(Generic[M]):
    """One thing as it should be and as it is.

    Attributes:
        key: Which thing, stable: "production".
        desired: As it should be.
        actual: As it is; None when it is not there.
        version: Of the actual state, as the other side counts it (an ETag, a revision); a repair is decided once for
            each. Where there is none, what differs is the version.
        since: Since when it is so, where that is known.
        correlation_id: Of what made it so, where that is known.
        evidence: What else was seen, as JSON, for the policy and the record.
        facts: What else the policy needs; it is not kept.
    """

    key: str
    desired: M
    actual: M | None
    version: str = ""
    tenant: str = ""
    since: datetime | None = None
    correlation_id: str = ""
    evidence: Mapping[str, Json] = field(default_factory=dict)
    facts: Any = None

    @property
    def differs(self) -> bool:
        """Whether it is not as it should be."""
        return self.actual != self.desired


InspectFn: TypeAlias = Callable[[Looking], AsyncIterator[Compared[M]]]
InspectPolicy: TypeAlias = Callable[[Compared[M], datetime], Plan]


class Inspection(Generic[M]):
    """A function that compares, with what follows from it.

    Args:
        name: For people, tables and metrics.
        fn: Yields everything that it compares, also what is as it should be.
        every: Time between two looks; one process of the service at a time looks.
        within: Longest time that a look may take.
        policy: What is to be done about what differs; by default persons are told.
        auto_repair: Up to which level plans go by themselves; above it a person is asked.

    Raises:
        DefinitionError: MP650 for a bad name or time.
    """

    def __init__(
        self,
        name: str,
        fn: InspectFn[M],
        *,
        every: timedelta,
        within: timedelta,
        policy: InspectPolicy[M] | None,
        auto_repair: Level,
    ) -> None:
        problem = text_problem(name, longest=LONGEST_NAME)
        if problem or not all(c.isascii() and (c.isalnum() or c in "-_") for c in name):
            raise DefinitionError(
                "MP650",
                f"inspect({name!r}): the name is letters, digits, '-' and '_', at most {LONGEST_NAME}.",
            )
        if every < SHORTEST or within <= timedelta(0):
            raise DefinitionError(
                "MP650",
                f"inspect({name!r}): every={every} must be a second or more, within={within} positive.",
            )
        self.name, self.every, self.within, self.auto_repair = name, every, within, auto_repair
        self.fn = fn
        self.policy = policy
        self.repairs: dict[Action, tuple[Saga[Any], Callable[[Compared[M]], BaseModel]]] = {}

    def repair(
        self, action: Action, saga: Saga[J]
    ) -> Callable[[Callable[[Compared[M]], J]], Callable[[Compared[M]], J]]:
        """Declare the run that carries an action out.

        Args:
            action: MARK_AS_SUCCESS, RETRY, RESUME, REBUILD or ROLLBACK.
            saga: One of the service's sagas. The decorated pure function makes its input; the saga's key says which
                repairs are one.

        Raises:
            DefinitionError: MP650 for another action, or one that is declared twice.
        """
        if action not in CAN[Drift.INSPECTED] or action in self.repairs:
            known = ", ".join(sorted(CAN[Drift.INSPECTED]))
            raise DefinitionError(
                "MP650",
                f"inspect({self.name!r}): repair({action}) is declared twice, or is none of {known}.",
            )

        def declare(fn: Callable[[Compared[M]], J]) -> Callable[[Compared[M]], J]:
            self.repairs[action] = (saga, fn)
            return fn

        return declare

    def observed(self, found: Compared[M], *, service: str, now: datetime) -> Observation:
        """Return what was compared as an observation.

        Raises:
            ValueError: When its key is no text of 1 to 200 characters that can be stored.
        """
        problem = text_problem(found.key, longest=LONGEST_KEY)
        if problem:
            raise ValueError(f"inspect({self.name!r}): key {found.key!r} {problem}")
        states = {"desired": _json(found.desired), "actual": _json(found.actual)}
        canonical = json.dumps({**states, "version": found.version}, sort_keys=True, separators=(",", ":"))
        since = found.since or now
        return Observation(
            drift=Drift.INSPECTED,
            subject=f"{service}/{self.name}/{found.tenant}/{found.key}",
            label=f"{self.name} {found.key}",
            observed=sha256(canonical.encode()).hexdigest()[:32],
            state="DIFFERS" if found.actual is not None else "MISSING",
            since=min(since, now),
            now=now,
            service=service,
            tenant=found.tenant,
            correlation_id=found.correlation_id,
            row={"inspection": self.name, "key": found.key},
            evidence={
                **found.evidence,
                **{name: _shortened(state) for name, state in states.items()},
                "version": found.version,
            },
        )

    def plan(self, found: Compared[M], seen: Observation) -> Plan:
        """Decide about what was compared. Never raises: a policy that does is told to persons."""
        if not found.differs:
            return nothing("it is as it should be")
        if self.policy is None:
            return escalate("it is not as it should be")
        try:
            plan = settled(seen, self.policy(found, seen.now))
        except Exception as error:
            return escalate(f"its policy raised {type(error).__name__}: {error}")
        if plan.action not in {Action.NONE, Action.ESCALATE} and plan.action not in self.repairs:
            return escalate(
                f"its policy wants {plan.action}, and no repair was declared for it: {plan.reason}"
            )
        return plan

    def alone(self, plan: Plan) -> bool:
        """Whether a plan is carried out without asking anybody."""
        return plan.level <= min(self.auto_repair, Level.BOUNDED_REPAIR)


def _json(state: BaseModel | None) -> Json:
    return None if state is None else state.model_dump(mode="json")


def _shortened(state: Json) -> Json:
    text = json.dumps(state)
    return (
        state
        if len(text) <= LONGEST_STATE
        else f"{len(text)} bytes, sha256 {sha256(text.encode()).hexdigest()}"
    )
