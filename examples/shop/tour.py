"""The demo's guided tour: what happened, and where in the console one sees it. Markdown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from .faults import BankFault, CarrierFault, bank_fault, carrier_fault
from .traffic import Kill
from .verdict import WAIT_TIMEOUT, Outcome, Verdict

Runs = Mapping[str, Mapping[str, Any]]

TEXT = """\
# What happened in the demo

{orders} orders went through a shop, a bank, a warehouse and a carrier: {completed} were completed, {compensated} undone
because a company said no, {timed_out} because nobody reported their delivery. Three processes were killed meanwhile.
In the end the companies' own books were compared with the orders: **{lost} effects lost, {duplicated} duplicated.**

## Killed while they worked

{kills}

Each was started again a second later. Until then its lease held back what it had begun, so that nobody did it twice.
[The overview](/) shows the processes that live now.

## Orders worth a look

{worth}

The page of a run has its steps as a drawing, as lanes of time, and as a list: each try, and what was answered.

## What to try

1. [Runs that were undone](/runs?state=COMPENSATED): choose one, and find in its history which company said no.
2. [The worklist](/worklist): empty, for every outcome could be settled by asking the other side.
3. Stop the relay (`kill {relay}`) and place an order. [The outbox](/outbox) shows that it has not left, and within ten
   seconds the worklist shows that the relay stands still.

        curl {shop}/orders -H 'Content-Type: application/json' \\
            -d '{{"order_id": "by-hand-1", "sku": "tea", "amount": "9.90"}}'

4. [The audit](/audit) keeps what you did, also what you were refused.
"""
_BANK = (
    (
        BankFault.LATE,
        "the bank charged and answered too late: UNKNOWN until the bank was asked; charged once",
    ),
    (BankFault.SILENT, "the bank charged, and its answer was lost: found by its reference; charged once"),
    (BankFault.LOST, "the call to the bank was lost: asked about, not found, and made again"),
)
_CARRIER = (
    (CarrierFault.EARLY, "delivered before the shop waited for it: the event was kept"),
    (CarrierFault.TWICE, "its delivery was reported twice: the second report changed nothing"),
)


def tour(
    verdict: Verdict, kills: Sequence[Kill], outcomes: Sequence[Outcome], runs: Runs, *, relay: int, shop: str
) -> str:
    """Return the tour.

    Args:
        outcomes: Of all orders, in the order in which they were placed.
        runs: By order id, as `milepost runs list --json` tells them.
        relay: Id of the relay's process.
        shop: Where the shop's API answers.
    """
    return TEXT.format(
        orders=verdict.orders,
        completed=verdict.completed,
        compensated=verdict.compensated,
        timed_out=verdict.timed_out,
        lost=verdict.count("lost"),
        duplicated=verdict.count("duplicated"),
        kills="\n".join(f"- **{kill.process}**, after {kill.placed} orders: {kill.work}" for kill in kills),
        worth="\n".join(_orders(outcomes, runs)),
        relay=relay,
        shop=shop,
    )


def _orders(outcomes: Sequence[Outcome], runs: Runs) -> list[str]:
    """Choose an order for each thing that can be seen, none twice."""
    wanted: list[tuple[str, Callable[[Outcome], bool]]] = [
        ("undone because nobody reported its delivery in time", lambda one: one.cause == WAIT_TIMEOUT),
        (
            "undone because its card was declined or its parcel refused",
            lambda one: one.state == "COMPENSATED" and one.cause != WAIT_TIMEOUT,
        ),
    ]
    wanted += [(words, partial(_met, bank_fault, fault)) for fault, words in _BANK]
    wanted += [(words, partial(_met, carrier_fault, fault)) for fault, words in _CARRIER]
    wanted.append(
        ("completed: reserved, charged, shipped, delivered, closed", lambda one: one.state == "SUCCEEDED")
    )
    found, seen = [], set[str]()
    for words, fits in wanted:
        order = next((one.order_id for one in outcomes if one.order_id not in seen and fits(one)), None)
        if order is not None and order in runs:
            seen.add(order)
            found.append(f"- [order/{order}](/runs/{runs[order]['id']}): {words}")
    return found


def _met(fault_of: Callable[[str], object], fault: object, one: Outcome) -> bool:
    return fault_of(one.order_id) is fault
