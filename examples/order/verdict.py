"""Compares the orders with what really happened, and with what persons said. Pure: facts in, verdict out."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ..shop.ledger import Effect
from .book import Placed
from .rules import Case, findings_of

Kind: TypeAlias = Literal["lost", "doubled", "wrong"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that should not be.

    Attributes:
        kind: "lost" (it should have happened and did not), "doubled" (it happened once too often) or "wrong" (it should
            not have happened at all).
    """

    kind: Kind
    order_id: str
    text: str


@dataclass(frozen=True, slots=True)
class Said:
    """What persons decided, by order id: whose refund was approved, and whose was finally refused."""

    approved: frozenset[str] = frozenset()
    refused: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Verdict:
    """How many orders ended how, and everything that is wrong.

    Attributes:
        charged: Charges in the bank's book; each is in exactly one of the next three if nothing is wrong.
        delivered: Charged, and delivered.
        refunded: Charged, and paid back.
        kept: Charged, not delivered, and a person has refused to pay back.
        untouched: Orders that nobody was charged for.
        short: Of these, the ones that got no stock.
    """

    orders: int
    charged: int
    delivered: int
    refunded: int
    kept: int
    untouched: int
    short: int
    findings: Sequence[Finding] = ()

    def count(self, kind: Kind) -> int:
        """Return the number of findings of a kind."""
        return sum(finding.kind == kind for finding in self.findings)


def compare(
    placed: Sequence[Placed],
    states: Mapping[str, str],
    effects: Iterable[Effect],
    stock: Mapping[str, int],
    said: Said,
) -> Verdict:
    """Compare orders with ledgers.

    Args:
        placed: Every order that the shop has accepted.
        states: State of each one's run.
        effects: All ledgers' rows together, each ledger's in its own order; invoices and closed orders besides.
        stock: How many pieces of what were there at the start; of anything else there was enough.
        said: What persons decided.

    Returns:
        The verdict. It has no findings only if every order came to an end; everything happened at most once; every
        charge was either delivered, paid back with a person's approval, or kept by a person's refusal; no more pieces
        were reserved than were there; whatever did not leave the house was released; and every customer was told once,
        and the truth.
    """
    everything = list(effects)
    by_order: dict[str, list[Effect]] = defaultdict(list)
    for effect in everything:
        by_order[effect.order_id].append(effect)
    cases = [
        Case(
            order,
            states.get(order.order_id, ""),
            by_order.pop(order.order_id, []),
            approved=order.order_id in said.approved,
            refused=order.order_id in said.refused,
        )
        for order in placed
    ]
    findings = [
        Finding(kind, case.order.order_id, text) for case in cases for kind, text in findings_of(case)
    ]
    findings += _oversold(everything, stock) + _unsold(cases, stock)
    findings += [
        Finding("wrong", effect.order_id, f"{effect.id}: nobody placed this order")
        for left in by_order.values()
        for effect in left
    ]
    return _counted(cases, findings)


def _counted(cases: Sequence[Case], findings: Sequence[Finding]) -> Verdict:
    charged = [case for case in cases if case.has("charge")]
    return Verdict(
        orders=len(cases),
        charged=sum(case.count("charge") for case in charged),
        delivered=sum(case.has("deliver") for case in charged),
        refunded=sum(case.has("refund") for case in charged),
        kept=sum(case.refused and not case.has("refund") for case in charged),
        untouched=len(cases) - len(charged),
        short=sum(not case.has("reserve") for case in cases),
        findings=tuple(findings),
    )


def _oversold(effects: Iterable[Effect], stock: Mapping[str, int]) -> list[Finding]:
    """Go through the warehouse's book: at no line may more be reserved than is there."""
    findings, taken, what = [], Counter[str](), {}
    for effect in effects:
        if effect.kind == "reserve":
            what[effect.id] = effect.subject
            taken[effect.subject] += 1
            most = stock.get(effect.subject)
            if most is not None and taken[effect.subject] > most:
                text = f"{effect.id}: {effect.subject} is oversold, {taken[effect.subject]} of {most}"
                findings.append(Finding("wrong", effect.order_id, text))
        elif effect.kind == "release" and effect.subject in what:
            taken[what[effect.subject]] -= 1
    return findings


def _unsold(cases: Sequence[Case], stock: Mapping[str, int]) -> list[Finding]:
    """Of what is scarce, as much is sold as is there: of two who want the last item, one gets it."""
    findings = []
    for sku, most in stock.items():
        wanted = [case for case in cases if case.order.sku == sku]
        got = sum(case.has("reserve") for case in wanted)
        if got < min(most, len(wanted)):
            names = ", ".join(case.order.order_id for case in wanted)
            findings.append(Finding("lost", names, f"{sku}: {most} there, and only {got} reserved"))
    return findings
