"""The safe steps of a runbook, each on what is there now: how much of it, what opens it, and why it cannot be done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ....recovery.bulk_choosing import RunFilter, preview_letters, preview_runs
from ....recovery.executor import Executor
from ....recovery.model import Action, Drift
from ....recovery.permissions import Act, Actor, ActorKind, scope_of
from ....recovery.runbooks import Runbook
from ....schemas.states import LetterStatus, RunState
from ...views.letters import letter_groups
from ...views.waiting import holds
from ..drifts import NO_APP, looking, mine
from ..parts import Parts
from ..rendering import counted
from ..rights import Offer, offer
from .letters import Asked

#: Most causes, or consumers, that have a step of their own; the others are on the page of letters.
_MOST = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step.

    Attributes:
        amount: How many things it would be done on.
        what: These, in words.
        path: Where the form goes, or which page shows them first, with a form of its own.
        subject: What the form sends beside act and reason; None where the page is only opened.
    """

    offer: Offer
    amount: int
    what: str
    path: str
    subject: Mapping[str, Any] | None = None
    id: str = ""


async def steps_of(own: Parts, connection: Any, actor: Actor, book: Runbook) -> list[Step]:
    """Return the steps that can be done from the page, in the order of the runbook."""
    found: list[Step] = []
    for act in book.safe:
        if act is Act.RECONCILE:
            found.append(await _reconcile(own, connection, actor, book.drift))
        elif act is Act.RETRY:
            found.append(await _retry(connection, actor))
        elif act in {Act.REDRIVE, Act.UNPARK}:
            found += await _letters(connection, actor, act, book.drift)
    return [replace(step, id=f"step-{n}") for n, step in enumerate(found)]


async def _reconcile(own: Parts, connection: Any, actor: Actor, drift: Drift) -> Step:
    """Look for this kind alone, and repair what is safe."""
    if drift is Drift.INSPECTED:
        return _inspect(own, actor)
    policies = own.policies
    seen = await looking(own, connection, Executor(ids=own.ids), drift, asked=True).observe({})
    plans = [(one, policies.plan(one)) for one in seen if mine(actor, one, Act.READ_RUNS)]
    needed = [(one, plan) for one, plan in plans if plan.action is not Action.NONE]
    alone = [one for one, plan in needed if policies.alone(one, plan) and plan.action is not Action.ESCALATE]
    words = (
        f"{counted(len(needed), 'thing')} of this kind now, of which {len(alone):,} can be repaired at once"
    )
    made = offer(
        actor,
        Act.RECONCILE,
        label="Reconcile now",
        says="this kind only: repairs what is safe, and tells persons of the rest",
        why_not="" if needed else "Nothing has drifted so now.",
        tenant=None,
    )
    return Step(offer=made, amount=len(needed), what=words, path="/recovery", subject={"drift": drift.value})


def _inspect(own: Parts, actor: Actor) -> Step:
    """Look at what the application inspects, which is outside and so not looked at to show a page."""
    names = [] if own.service is None else list(own.service.inspections)
    why_not = NO_APP if own.service is None else "" if names else "The application inspects nothing."
    made = offer(
        actor,
        Act.RECONCILE,
        label="Reconcile now",
        says="looks, and repairs what is safe",
        why_not=why_not,
        tenant=None,
    )
    words = counted(len(names), "inspection") + (f": {', '.join(names)}" if names else "")
    subject = {"drift": Drift.INSPECTED.value}
    return Step(offer=made, amount=len(names), what=words, path="/recovery", subject=subject)


async def _retry(connection: Any, actor: Actor) -> Step:
    """Try what has failed to be undone again, under its own key."""
    state = RunState.COMPENSATION_FAILED
    found = await preview_runs(connection, actor, "retry", RunFilter(states=(state,)))
    words = f"{counted(len(found.items), 'item')} of runs of which an undo failed for good" + _beside(
        found.forbidden
    )
    made = offer(
        actor,
        Act.RETRY,
        label="Retry",
        says="shows them first",
        why_not=_many(actor) or ("" if found.items else "Nothing fits: no undo has failed for good."),
        tenant=None,
    )
    path = f"/bulk/new?act=retry&state={state.value}"
    return Step(offer=made, amount=len(found.items), what=words, path=path)


async def _letters(connection: Any, actor: Actor, act: Act, drift: Drift) -> list[Step]:
    """Have letters handled, or sent, once more: by cause, or those that are first of the keys of a consumer."""
    scope, payloads = scope_of(actor, Act.READ_LETTERS), scope_of(actor, Act.READ_PAYLOAD)
    wanted: list[tuple[Asked, str, str]] = []
    if drift is Drift.KEY_HELD:
        held = await holds(connection, scope, payloads=payloads)
        names = dict.fromkeys(one.consumer for one in held.holds if one.consumer != "relay" and one.waiting)
        wanted = [(_open(consumer=name), f"first of the held keys of {name}", "") for name in names]
    else:
        filtered = _open(consumer="relay" if drift is Drift.OUTBOX_PARKED else "")
        groups = await letter_groups(connection, scope, filtered.wanted, payloads=payloads)
        for one in groups.groups:
            if one.code == "KEY_HELD" or (one.consumer == "relay") is not (drift is Drift.OUTBOX_PARKED):
                continue
            why_not = "" if one.recoverable else "They cannot be handled as they are. Edit or ignore them."
            place = f"{one.code} of {one.consumer}, topic {one.topic}"
            wanted.append((_open(cause=one.name), place, why_not))
    found = [await _of_letters(connection, actor, act, one) for one in wanted[:_MOST]]
    nothing = offer(
        actor, act, label=_LABELS[act], why_not="Nothing fits: no such letter is open.", tenant=None
    )
    return found or [Step(offer=nothing, amount=0, what="0 open letters", path="/letters/acts", subject={})]


async def _of_letters(connection: Any, actor: Actor, act: Act, one: tuple[Asked, str, str]) -> Step:
    asked, place, why_not = one
    found = await preview_letters(connection, actor, "redrive", asked.wanted, chosen={})
    amount = len(found.items)
    why_not = _many(actor) or why_not or ("" if amount else "Nothing fits: each is asked for already.")
    made = offer(actor, act, label=_LABELS[act], says="shows them first", why_not=why_not, tenant=None)
    return Step(
        offer=replace(made, name="redrive"),  # what the page of letters calls either
        amount=amount,
        what=f"{counted(amount, 'open letter')} {place}" + _beside(found.forbidden),
        path="/letters/acts",
        subject={"chosen": asked.query},
    )


_LABELS = {Act.REDRIVE: "Redrive", Act.UNPARK: "Unpark"}


def _open(**chosen: str) -> Asked:
    return Asked(status=LetterStatus.OPEN.value, **chosen)


def _beside(forbidden: int) -> str:
    return f", and {forbidden:,} that you may not act on" if forbidden else ""


def _many(actor: Actor) -> str:
    """Say why whoever asks cannot act on many."""
    return "" if actor.kind is ActorKind.PERSON else "Acts on many are a person's; propose one at a time."
