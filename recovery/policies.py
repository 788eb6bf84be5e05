"""What is to be done about a drift, by default. Pure: an observation in, a plan out; age alone is never a reason.

A policy may be replaced for each kind of drift and for each saga. What it says is checked before it is carried out: an
action that cannot be carried out for that drift is told to persons instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeAlias

from ..schemas.states import Level
from .model import CAN, PATIENCE, Action, Drift, Observation, Plan

Policy: TypeAlias = Callable[[Observation], Plan]

#: How long a queue may be without a process, as while a service is deployed.
UNSERVED = timedelta(minutes=1)
#: How long probes may ask without an answer before persons are told.
DOUBT = timedelta(hours=1)


def nothing(reason: str) -> Plan:
    """Leave it as it is, which is not recorded."""
    return Plan(Action.NONE, Level.DETECT, reason)


def escalate(reason: str) -> Plan:
    """Tell persons, once for each episode; nothing is changed."""
    return Plan(Action.ESCALATE, Level.PERSON, reason)


def worker_lost(seen: Observation) -> Plan:
    """Take the row from a worker whose lease has ended; by its `repeat` it is tried again, asked about, or held."""
    return Plan(Action.RETRY, Level.SAFE_RETRY, "the lease of the worker that holds it has ended")


def not_told(seen: Observation) -> Plan:
    """Announce the work again when workers are there and would have had it: idle, or busy with what came later."""
    told = seen.evidence
    if not told.get("workers"):
        # One cause of many: persons are told of the queue, not of each step.
        if seen.age < UNSERVED:
            return nothing("no process serves its queue yet")
        return escalate("no live process serves its queue and its version")
    for name, reason in _WAITS_FOR.items():
        if told.get(name):
            return nothing(reason)
    if told.get("under_way") and not told.get("overtaken"):
        return nothing("its queue is being worked on, and nothing that came later was taken before it")
    if told.get("in_vain"):
        return escalate("it was announced again, and no worker of its queue takes it")
    return Plan(Action.RESUME, Level.SAFE_RETRY, "workers are there, and nobody has claimed it")


_WAITS_FOR = {
    "limited": "a rate limit has told it to wait",
    "handed_over": "it lies ready for a process that has its version",
    "outbox_behind": "its message may not have left yet: the outbox is behind",
}


def signal_present(seen: Observation) -> Plan:
    """Wake a wait whose event is there; one that was never matched with it is a person's."""
    if seen.evidence.get("matched"):
        return Plan(Action.RESUME, Level.SYNCHRONISE, "its event is there, and the run has not gone on")
    return escalate("an event that fits it was stored, and they were never matched")


def unknown(seen: Observation) -> Plan:
    """Leave it to its probes; ask at once where a person wants to know, and tell persons when nobody answers."""
    if seen.asked:
        return Plan(Action.RETRY, Level.SAFE_RETRY, "asked for: the other side is asked now")
    if seen.age >= DOUBT:
        return escalate("probes have asked for an hour, and nobody knows yet")
    return nothing("probes settle it; the next one has its time")


def undo_stopped(seen: Observation) -> Plan:
    """Go on with an undo that nobody works on; what has failed for good is half done outside, and a person's."""
    if seen.state == "COMPENSATION_FAILED":
        return escalate("an undo failed for good, so something is half done outside")
    if seen.step is not None:
        return not_told(seen)
    return Plan(Action.RESUME, Level.SAFE_RETRY, "the run is being undone, and none of its rows is under way")


def letter_open(seen: Observation) -> Plan:
    """Ask a person: the cause has to be mended first, and only a person knows whether it was."""
    if seen.evidence.get("recoverable"):
        return Plan(
            Action.RETRY,
            Level.APPROVAL,
            "parked for long; the first of them is tried once its cause is mended",
        )
    return escalate("parked for long, and it can never be applied as it is")


def key_held(seen: Observation) -> Plan:
    """Release a key that no letter holds any more; else its letters are what has to be looked after."""
    if seen.evidence.get("letters"):
        return nothing("its letters hold it; they are looked after")
    return Plan(Action.RELEASE_LOCK, Level.BOUNDED_REPAIR, "it is held, and no open letter of it is there")


def outbox_behind(seen: Observation) -> Plan:
    """Tell persons: a relay has to be started, or Kafka is away."""
    leads = seen.evidence.get("relay")
    return escalate("a relay leads, and does not get on" if leads else "no relay runs")


def outbox_parked(seen: Observation) -> Plan:
    """Tell persons of what cannot be sent; what waits for its topic goes by itself once that is there."""
    return escalate("the relay has put them aside, and somebody has to mend why")


def wait_old(seen: Observation) -> Plan:
    """Nothing while its timeout is ahead, however old it is; tell persons when that is over and nobody has acted."""
    if seen.evidence.get("overdue"):
        return escalate("its timeout is over, and nobody has acted on it: no waker runs")
    return nothing("it waits for as long as it was told to")


def lock_left(seen: Observation) -> Plan:
    """Release a lock whose run has ended; the next in its queue begins."""
    return Plan(Action.RELEASE_LOCK, Level.SYNCHRONISE, "the run that holds it has ended")


def inspected(seen: Observation) -> Plan:
    """Tell persons; an inspection that can repair has a policy of its own."""
    return escalate("it is not as desired")


DEFAULTS: Mapping[Drift, Policy] = {
    Drift.WORKER_LOST: worker_lost,
    Drift.NOT_TOLD: not_told,
    Drift.SIGNAL_PRESENT: signal_present,
    Drift.UNKNOWN: unknown,
    Drift.UNDO_STOPPED: undo_stopped,
    Drift.LETTER_OPEN: letter_open,
    Drift.KEY_HELD: key_held,
    Drift.OUTBOX_BEHIND: outbox_behind,
    Drift.OUTBOX_PARKED: outbox_parked,
    Drift.WAIT_OLD: wait_old,
    Drift.LOCK_LEFT: lock_left,
    Drift.INSPECTED: inspected,
}


@dataclass(frozen=True)
class Policies:
    """Which policy holds for what, and up to which level its plans go by themselves.

    Attributes:
        given: What replaces a default, by drift and saga; saga None is for all that have none of their own.
        after: How long a drift must have lasted before anything is decided, in the same way; where nothing is said, as
            long as the observer says.
        levels: Up to which level repairs of a saga's runs go by themselves.
        level: The same of everything else.
    """

    given: Mapping[tuple[Drift, str | None], Policy] = field(default_factory=dict)
    after: Mapping[tuple[Drift, str | None], timedelta] = field(default_factory=dict)
    levels: Mapping[str, Level] = field(default_factory=dict)
    level: Level = Level.SAFE_RETRY

    def plan(self, seen: Observation) -> Plan:
        """Decide about a drift. Never raises: a policy that does is told to persons."""
        least = self.least(seen)
        if least is not None and seen.age < least and not seen.asked:
            return nothing("it may last longer")
        own = self.given.get((seen.drift, seen.saga)) or self.given.get((seen.drift, None))
        try:
            found = (own or DEFAULTS[seen.drift])(seen)
        except Exception as error:
            found = escalate(f"its policy raised {type(error).__name__}: {error}")
        return settled(seen, found)

    def least(self, seen: Observation) -> timedelta | None:
        """Return how long it must have lasted, where that was said of its kind of work."""
        return self.after.get((seen.drift, seen.saga), self.after.get((seen.drift, None)))

    def alone(self, seen: Observation, plan: Plan) -> bool:
        """Whether a plan is carried out without asking anybody."""
        allowed = self.level if seen.saga is None else self.levels.get(seen.saga, self.level)
        return plan.level <= min(allowed, Level.BOUNDED_REPAIR)


@dataclass(frozen=True)
class OfService(Policies):
    """Policies that hold for one service where several are looked at; for what is another one's the defaults do.

    Attributes:
        service: Its name.
    """

    service: str = ""

    def plan(self, seen: Observation) -> Plan:
        """Decide about a drift, by the policies of whose it is."""
        return super().plan(seen) if self._own(seen) else Policies().plan(seen)

    def least(self, seen: Observation) -> timedelta | None:
        """Return how long it must have lasted, where that was said of its kind of work."""
        return super().least(seen) if self._own(seen) else None

    def alone(self, seen: Observation, plan: Plan) -> bool:
        """Whether a plan is carried out without asking anybody."""
        return super().alone(seen, plan) if self._own(seen) else Policies().alone(seen, plan)

    def _own(self, seen: Observation) -> bool:
        return seen.service in {"", self.service}


def settled(seen: Observation, plan: object) -> Plan:
    """Return the plan that is acted on: what cannot be done, and what was in vain, is told to persons instead."""
    if not isinstance(plan, Plan):
        return escalate(f"its policy returned {type(plan).__name__}, no Plan")
    if plan.action in {Action.NONE, Action.ESCALATE}:
        return plan
    if plan.action not in CAN[seen.drift]:
        return escalate(f"its policy wants {plan.action}, which cannot be done about {seen.drift}")
    if seen.repaired_at is not None:
        if seen.now - seen.repaired_at < PATIENCE:
            return nothing("it was repaired a moment ago")
        return escalate("it was repaired, and has not moved since")
    return escalate(plan.reason) if plan.level is Level.PERSON else plan
