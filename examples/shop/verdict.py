"""Compares the orders with what really happened at the other companies. Pure: facts in, verdict out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from .ledger import Effect

Company: TypeAlias = Literal["bank", "warehouse", "carrier", "billing", "shop"]

#: Who holds the book of which kind of effect.
BOOKS: Mapping[str, Company] = {
    "reserve": "warehouse",
    "release": "warehouse",
    "charge": "bank",
    "refund": "bank",
    "ship": "carrier",
    "cancel": "carrier",
    "deliver": "carrier",
    "invoice": "billing",
    "close": "shop",
}
#: What undoes what.
UNDOES = {"release": "reserve", "refund": "charge", "cancel": "ship"}
#: The code of a run whose wait ran out of time.
WAIT_TIMEOUT = "WAIT_TIMEOUT"


@dataclass(frozen=True, slots=True)
class Outcome:
    """An order that was placed, and how its run ended.

    Attributes:
        state: The run's state; '' when the run is missing.
        cause: Why it was undone, '' when it was not.
        amount: What the customer was to pay, as decimal text.
    """

    order_id: str
    state: str
    cause: str
    amount: str


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that should not be.

    Attributes:
        kind: "lost" (it should have happened and did not) or "duplicated" (it happened and should not have).
    """

    kind: Literal["lost", "duplicated"]
    company: str
    order_id: str
    text: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """How many orders ended how, and everything that is wrong.

    Attributes:
        completed: Orders that went through.
        compensated: Orders that were undone, except timed out ones.
        timed_out: Orders that were undone because no delivery was reported in time.
        effects: Number of effects by kind.
    """

    orders: int
    completed: int
    compensated: int
    timed_out: int
    effects: Mapping[str, int] = field(default_factory=dict)
    findings: Sequence[Finding] = ()

    def count(self, kind: Literal["lost", "duplicated"]) -> int:
        """Return the number of findings of a kind."""
        return sum(finding.kind == kind for finding in self.findings)


def compare(outcomes: Sequence[Outcome], effects: Iterable[Effect]) -> Verdict:
    """Compare orders with ledgers.

    Args:
        outcomes: Every order that the shop accepted.
        effects: All ledgers' rows together; billing's bookings as "invoice", orders marked done as "close".

    Returns:
        The verdict. It has no findings only if every completed order was reserved, charged, shipped,
        delivered, booked and closed once with nothing undone, and every other one has ended with all undone.
    """
    by_order: dict[str, list[Effect]] = defaultdict(list)
    totals: dict[str, int] = dict.fromkeys(BOOKS, 0)
    for effect in effects:
        by_order[effect.order_id].append(effect)
        totals[effect.kind] = totals.get(effect.kind, 0) + 1
    findings = [
        finding for outcome in outcomes for finding in _order(outcome, by_order.pop(outcome.order_id, []))
    ]
    findings += [_stray(effect) for left in by_order.values() for effect in left]
    undone = [outcome for outcome in outcomes if outcome.state == "COMPENSATED"]
    late = sum(outcome.cause == WAIT_TIMEOUT for outcome in undone)
    return Verdict(
        orders=len(outcomes),
        completed=sum(outcome.state == "SUCCEEDED" for outcome in outcomes),
        compensated=len(undone) - late,
        timed_out=late,
        effects=totals,
        findings=tuple(findings),
    )


def _order(outcome: Outcome, effects: Sequence[Effect]) -> list[Finding]:
    counts = {kind: sum(effect.kind == kind for effect in effects) for kind in BOOKS}
    if outcome.state not in ("SUCCEEDED", "COMPENSATED"):
        state = outcome.state or "without a run"
        open_effects = (
            ", ".join(f"{count} × {kind}" for kind, count in counts.items() if count) or "no effects"
        )
        return [
            Finding("lost", "shop", outcome.order_id, f"not brought to an end: {state}, with {open_effects}")
        ]
    expected = _completed() if outcome.state == "SUCCEEDED" else _undone(counts)
    findings = [
        finding
        for kind, count in counts.items()
        for finding in _counted(outcome, kind, count, expected[kind])
    ]
    return findings + _amounts(outcome, effects)


def _completed() -> dict[str, int]:
    return {kind: 0 if kind in UNDOES else 1 for kind in BOOKS}


def _undone(counts: Mapping[str, int]) -> dict[str, int]:
    """Of an undone order nothing happened more than once, and each time that it happened it was undone.

    A parcel may have been delivered all the same, too late for the wait; it is fetched back then.
    """
    expected = {kind: min(count, 1) for kind, count in counts.items()}
    return {**expected, **{undo: counts[done] for undo, done in UNDOES.items()}, "invoice": 1, "close": 0}


def _counted(outcome: Outcome, kind: str, found: int, expected: int) -> list[Finding]:
    wrong: Literal["lost", "duplicated"] = "lost" if found < expected else "duplicated"
    text = f"{kind}: {found} in the ledger, {expected} expected of an order that is {outcome.state}"
    return [Finding(wrong, BOOKS[kind], outcome.order_id, text)] * abs(found - expected)


def _amounts(outcome: Outcome, effects: Sequence[Effect]) -> list[Finding]:
    return [
        Finding(
            "lost", BOOKS[effect.kind], outcome.order_id, f"{effect.id}: {effect.amount} for {outcome.amount}"
        )
        for effect in effects
        if effect.amount and effect.amount != outcome.amount
    ]


def _stray(effect: Effect) -> Finding:
    return Finding(
        "duplicated", BOOKS[effect.kind], effect.order_id, f"{effect.id}: no such order was placed"
    )
