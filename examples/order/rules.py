"""What must hold of one order, from the ledgers' rows alone. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ..shop.ledger import Effect
from .book import Placed

Wrong: TypeAlias = tuple[Literal["lost", "doubled", "wrong"], str]

#: Everything that may happen to an order; nothing of it twice.
KINDS = (
    "reserve",
    "release",
    "wrap",
    "pack",
    "charge",
    "refund",
    "ship",
    "deliver",
    "return",
    "lose",
    "invoice",
    "close",
    "letter",
)


@dataclass(frozen=True, slots=True)
class Case:
    """One order and all that is known of it.

    Attributes:
        state: Its run's state, '' without a run.
        effects: Its rows in all ledgers.
        approved: A person has approved that its money goes back.
        refused: A person has refused that, for good.
    """

    order: Placed
    state: str
    effects: Sequence[Effect]
    approved: bool
    refused: bool

    def count(self, kind: str) -> int:
        """Return how often something happened."""
        return sum(effect.kind == kind for effect in self.effects)

    def has(self, kind: str) -> bool:
        """Tell whether something happened."""
        return any(effect.kind == kind for effect in self.effects)

    def word(self, kind: str) -> str:
        """Return the subject of what happened, '' when it did not."""
        return next((effect.subject for effect in self.effects if effect.kind == kind), "")

    @property
    def end(self) -> str:
        """How it ought to have ended, judged by carrier, bank and persons."""
        if not self.has("ship"):
            return "cancelled"
        if self.has("deliver"):
            return "delivered"
        return "kept" if self.refused else "refunded"


def findings_of(case: Case) -> list[Wrong]:
    """Return everything that is wrong with an order."""
    wanted = "SUCCEEDED" if case.has("ship") else "COMPENSATED"
    if case.state != wanted:
        known = ", ".join(kind for kind in KINDS if case.has(kind)) or "nothing"
        return [("lost", f"not brought to its end: {case.state or 'no run'}, with {known} in the ledgers")]
    return [*_once(case), *_money(case), *_goods(case), *_words(case)]


def _once(case: Case) -> Iterator[Wrong]:
    for kind in KINDS:
        if case.count(kind) > 1:
            yield "doubled", f"{kind}: {case.count(kind)} times"


def _money(case: Case) -> Iterator[Wrong]:
    charged, refunded = case.has("charge"), case.has("refund")
    if refunded and not charged:
        yield "wrong", "refunded, and never charged"
    if refunded and case.has("deliver"):
        yield "wrong", "refunded, and delivered"
    if refunded and not case.approved:
        yield "wrong", "refunded without a person's approval"
    if refunded and case.refused:
        yield "wrong", "refunded although a person has refused it"
    if charged and not (refunded or case.has("deliver") or case.refused):
        yield "lost", "unrefunded: charged, not delivered, not paid back"
    if case.has("invoice") and not charged:
        yield "wrong", "invoiced, and never charged"
    for effect in case.effects:
        if effect.amount and effect.amount != case.order.amount:
            yield "wrong", f"{effect.id}: {effect.amount} for {case.order.amount}"


def _goods(case: Case) -> Iterator[Wrong]:
    shipped = case.has("ship")
    for kind in ("charge", "pack", "ship"):
        if case.has(kind) and not case.has("reserve"):
            yield "wrong", f"{kind}: without a reservation"
    if shipped:
        for kind in ("charge", "pack", "invoice", *(("wrap",) if case.order.gift else ())):
            if not case.has(kind):
                yield "lost", f"{kind}: missing, and shipped all the same"
    if case.has("wrap") and not case.order.gift:
        yield "wrong", "wrapped, and no gift"
    back = case.has("reserve") and (not shipped or case.has("return"))
    if back and not case.has("release"):
        yield "lost", "still reserved, though it is in the house"
    if case.has("release") and not back:
        yield "wrong", "released, though it is not in the house"


def _words(case: Case) -> Iterator[Wrong]:
    if not case.has("letter"):
        yield "lost", "nobody told the customer"
    elif case.word("letter") != case.end:
        yield "wrong", f"the customer was told {case.word('letter')}, and it is {case.end}"
    closed = case.end if case.has("ship") else ""
    if case.word("close") != closed:
        yield "wrong", f"closed as {case.word('close') or 'nothing'} instead of {closed or 'nothing'}"
