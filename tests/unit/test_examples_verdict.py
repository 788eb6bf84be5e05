"""The demo's verdict: what it takes to be ok, and that each kind of wrong is found."""

from __future__ import annotations

import pytest
from milepost.examples.shop import report
from milepost.examples.shop.ledger import Effect
from milepost.examples.shop.verdict import Outcome, Verdict, compare

DONE = ("reserve", "charge", "ship", "deliver", "invoice", "close")
UNDONE = ("reserve", "charge", "ship", "invoice", "cancel", "refund", "release")


def outcome(order_id: str, state: str = "SUCCEEDED", cause: str = "") -> Outcome:
    return Outcome(order_id, state, cause, "9.90")


def effects(order_id: str, *kinds: str, amount: str = "9.90") -> list[Effect]:
    money = {"charge", "refund", "invoice"}
    return [
        Effect(f"{kind}-{n}", kind, f"{order_id}:{kind}", order_id, amount=amount if kind in money else "")
        for n, kind in enumerate(kinds)
    ]


def found(verdict: Verdict) -> set[tuple[str, str, str]]:
    return {(item.kind, item.company, item.order_id) for item in verdict.findings}


def test_one_of_each_outcome_is_ok() -> None:
    orders = [
        outcome("a"),
        outcome("b", "COMPENSATED", "CARD_DECLINED"),
        outcome("c", "COMPENSATED", "WAIT_TIMEOUT"),
    ]
    books = effects("a", *DONE) + effects("b", "reserve", "release", "invoice") + effects("c", *UNDONE)
    verdict = compare(orders, books)
    assert not verdict.findings
    assert (verdict.orders, verdict.completed, verdict.compensated, verdict.timed_out) == (3, 1, 1, 1)
    assert report.last_line(verdict, 3) == (
        "demo ok: 3 orders, 1 completed, 1 compensated, 1 timed out, 3 kills, 0 lost, 0 duplicated"
    )


@pytest.mark.parametrize("kind", DONE)
def test_an_effect_that_a_completed_order_lacks_is_lost(kind: str) -> None:
    verdict = compare([outcome("a")], effects("a", *(other for other in DONE if other != kind)))
    assert verdict.count("lost") == 1
    assert verdict.count("duplicated") == 0
    assert verdict.findings[0].text.startswith(f"{kind}: 0 in the ledger, 1 expected")


@pytest.mark.parametrize("kind", DONE)
def test_an_effect_that_happened_twice_is_duplicated(kind: str) -> None:
    verdict = compare([outcome("a")], effects("a", *DONE, kind))
    assert (verdict.count("lost"), verdict.count("duplicated")) == (0, 1)


def test_each_further_charge_counts() -> None:
    verdict = compare([outcome("a")], effects("a", *DONE, "charge", "charge"))
    assert verdict.count("duplicated") == 2


@pytest.mark.parametrize(
    ("undo", "company"), [("refund", "bank"), ("release", "warehouse"), ("cancel", "carrier")]
)
def test_an_undo_that_is_missing_is_lost(undo: str, company: str) -> None:
    books = effects("a", *(kind for kind in UNDONE if kind != undo))
    assert found(compare([outcome("a", "COMPENSATED", "NO_ROUTE")], books)) == {("lost", company, "a")}


@pytest.mark.parametrize("undo", ["refund", "release", "cancel"])
def test_an_undo_of_a_completed_order_is_duplicated(undo: str) -> None:
    verdict = compare([outcome("a")], effects("a", *DONE, undo))
    assert (verdict.count("lost"), verdict.count("duplicated")) == (0, 1)


def test_a_second_refund_is_duplicated() -> None:
    verdict = compare([outcome("a", "COMPENSATED")], effects("a", *UNDONE, "refund"))
    assert found(verdict) == {("duplicated", "bank", "a")}


def test_two_charges_of_which_one_was_refunded_are_both_wrong() -> None:
    verdict = compare([outcome("a", "COMPENSATED")], effects("a", *UNDONE, "charge"))
    assert (verdict.count("lost"), verdict.count("duplicated")) == (1, 1)


def test_a_parcel_that_came_too_late_for_the_wait_and_was_fetched_back_is_ok() -> None:
    verdict = compare([outcome("a", "COMPENSATED", "WAIT_TIMEOUT")], effects("a", *UNDONE, "deliver"))
    assert not verdict.findings


def test_an_undone_order_must_not_be_closed() -> None:
    verdict = compare([outcome("a", "COMPENSATED")], effects("a", *UNDONE, "close"))
    assert found(verdict) == {("duplicated", "shop", "a")}


@pytest.mark.parametrize(
    "state", ["", "RUNNING", "WAITING", "FAILED", "MANUAL_REQUIRED", "COMPENSATION_FAILED"]
)
def test_an_order_that_was_not_brought_to_an_end_is_lost(state: str) -> None:
    verdict = compare([outcome("a", state)], effects("a", "reserve", "charge"))
    assert verdict.count("lost") == 1
    assert "1 × charge" in verdict.findings[0].text
    assert report.last_line(verdict, 3).startswith("demo failed: ")


def test_an_effect_of_an_order_that_nobody_placed_is_found() -> None:
    verdict = compare([outcome("a")], effects("a", *DONE) + effects("ghost", "charge"))
    assert found(verdict) == {("duplicated", "bank", "ghost")}


def test_a_wrong_amount_is_found() -> None:
    verdict = compare([outcome("a")], effects("a", *DONE, amount="9.91"))
    assert {item.text for item in verdict.findings} == {"charge-1: 9.91 for 9.90", "invoice-4: 9.91 for 9.90"}


def test_the_demo_is_not_ok_when_it_shows_no_compensation_or_too_few_kills() -> None:
    verdict = compare([outcome("a")], effects("a", *DONE))
    assert report.faults(verdict, 2) == [
        "2 kills instead of 3",
        "no order compensated for a refusal, so the demo shows nothing about that",
        "no order timed out waiting for its delivery, so the demo shows nothing about that",
    ]
    assert report.last_line(verdict, 2).startswith("demo failed: 1 orders, 1 completed")
