"""The order example's verdict: what it takes to be ok, and that each kind of wrong is found; its orders and stock."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from milepost.examples.order.book import NONE_LEFT, PLENTY, Placed, orders, rivals, stock
from milepost.examples.order.demo import said
from milepost.examples.order.person import Word
from milepost.examples.order.report import Result, faults, last_line
from milepost.examples.order.verdict import Said, Verdict, compare
from milepost.examples.shop.faults import End, at_address
from milepost.examples.shop.ledger import Effect, Ledger, Limit, LimitReached
from milepost.examples.stage.kills import Kill

SHIPPED = ("reserve", "charge", "invoice", "pack", "ship")
DELIVERED = (*SHIPPED, "deliver", "close:delivered", "letter:delivered")
LOST = (*SHIPPED, "lose", "refund", "close:refunded", "letter:refunded")
KEPT = (*SHIPPED, "lose", "close:kept", "letter:kept")
UNDONE = ("reserve", "charge", "invoice", "pack", "refund", "release", "letter:cancelled")
SHORT = ("letter:cancelled",)
MONEY = {"charge", "refund", "invoice"}


def placed(order_id: str, sku: str = PLENTY, *, gift: bool = False) -> Placed:
    return Placed(order_id, sku, "9.90", "1 High Street", gift)


def rows(order_id: str, *kinds: str, sku: str = PLENTY, amount: str = "9.90") -> list[Effect]:
    """Rows of ledgers; "letter:kept" is a letter with that subject."""
    found = []
    for n, text in enumerate(kinds):
        kind, _, subject = text.partition(":")
        subject = {"reserve": sku, "release": f"{order_id}-0"}.get(kind, subject)
        id = f"{order_id}-{n}"
        found.append(
            Effect(id, kind, f"{id}:key", order_id, subject=subject, amount=amount if kind in MONEY else "")
        )
    return found


def judge(
    books: Mapping[str, tuple[str, ...]],
    *,
    states: Mapping[str, str] | None = None,
    words: Said | None = None,
) -> Verdict:
    ended = {order_id: "SUCCEEDED" if "ship" in kinds else "COMPENSATED" for order_id, kinds in books.items()}
    effects = [row for order_id, kinds in books.items() for row in rows(order_id, *kinds)]
    return compare(
        [placed(order_id) for order_id in books],
        {**ended, **(states or {})},
        effects,
        {},
        words or Said(approved=frozenset(books)),
    )


def texts(verdict: Verdict) -> list[str]:
    return [f"{item.kind} {item.order_id} {item.text}" for item in verdict.findings]


def without(kinds: tuple[str, ...], *left_out: str) -> tuple[str, ...]:
    return tuple(kind for kind in kinds if kind not in left_out)


def test_one_of_each_end_is_ok() -> None:
    books = {"a": DELIVERED, "b": LOST, "c": KEPT, "d": UNDONE, "e": SHORT}
    said_so = Said(approved=frozenset("bd"), refused=frozenset("c"))
    verdict = judge(books, words=said_so)
    assert texts(verdict) == []
    assert (verdict.charged, verdict.delivered, verdict.refunded, verdict.kept) == (4, 1, 2, 1)
    assert (verdict.untouched, verdict.short) == (1, 1)


def test_a_double_charge_is_found() -> None:
    verdict = judge({"a": (*DELIVERED, "charge")})
    assert texts(verdict) == ["doubled a charge: 2 times"]
    assert "2 charges, and 1 delivered, refunded or kept" in faults(verdict, 3, [])


@pytest.mark.parametrize("kind", ["ship", "letter:delivered", "reserve", "invoice", "pack", "deliver"])
def test_whatever_happened_twice_is_found(kind: str) -> None:
    assert texts(judge({"a": (*DELIVERED, kind)})) == [f"doubled a {kind.partition(':')[0]}: 2 times"]


@pytest.mark.parametrize("end", [LOST, UNDONE])
def test_an_order_that_was_not_refunded_is_found(end: tuple[str, ...]) -> None:
    assert "lost a unrefunded: charged, not delivered, not paid back" in texts(
        judge({"a": without(end, "refund")})
    )


def test_two_orders_that_both_got_the_last_item_are_found() -> None:
    both = [placed("a", "last"), placed("b", "last")]
    effects = rows("a", *DELIVERED, sku="last") + rows("b", *DELIVERED, sku="last")
    verdict = compare(both, dict.fromkeys("ab", "SUCCEEDED"), effects, {"last": 1}, Said())
    assert texts(verdict) == ["wrong b b-0: last is oversold, 2 of 1"]


def test_a_last_item_that_came_back_may_be_sold_again() -> None:
    orders = [placed("a", "last"), placed("b", "last")]
    effects = rows("a", *UNDONE, sku="last") + rows("b", *DELIVERED, sku="last")
    ended = {"a": "COMPENSATED", "b": "SUCCEEDED"}
    assert texts(compare(orders, ended, effects, {"last": 1}, Said(approved=frozenset("a")))) == []


def test_a_last_item_that_nobody_got_is_found() -> None:
    both = [placed("a", "last"), placed("b", "last")]
    effects = rows("a", *SHORT) + rows("b", *SHORT)
    verdict = compare(both, dict.fromkeys("ab", "COMPENSATED"), effects, {"last": 1}, Said())
    assert texts(verdict) == ["lost a, b last: 1 there, and only 0 reserved"]


def test_a_refund_that_no_person_approved_is_found() -> None:
    assert texts(judge({"a": UNDONE}, words=Said())) == ["wrong a refunded without a person's approval"]


def test_a_refund_that_a_person_refused_is_found() -> None:
    kinds = (*without(LOST, "close:refunded", "letter:refunded"), "close:kept", "letter:kept")
    verdict = judge({"a": kinds}, words=Said(refused=frozenset("a")))
    assert "wrong a refunded although a person has refused it" in texts(verdict)


def test_a_refund_of_a_delivered_order_is_found() -> None:
    assert texts(judge({"a": (*DELIVERED, "refund")})) == ["wrong a refunded, and delivered"]


def test_stock_that_stays_reserved_is_found() -> None:
    assert texts(judge({"a": without(UNDONE, "release")})) == [
        "lost a still reserved, though it is in the house"
    ]


def test_a_released_item_that_has_left_the_house_is_found() -> None:
    assert texts(judge({"a": (*DELIVERED, "release")})) == ["wrong a released, though it is not in the house"]


@pytest.mark.parametrize("kind", ["charge", "pack", "invoice"])
def test_what_is_missing_before_shipping_is_found(kind: str) -> None:
    assert f"lost a {kind}: missing, and shipped all the same" in texts(
        judge({"a": without(DELIVERED, kind)})
    )


def test_a_gift_is_wrapped_and_nothing_else_is() -> None:
    gift, plain = placed("a", gift=True), placed("b")
    effects = rows("a", *DELIVERED) + rows("b", *DELIVERED, "wrap")
    verdict = compare([gift, plain], dict.fromkeys("ab", "SUCCEEDED"), effects, {}, Said())
    assert texts(verdict) == [
        "lost a wrap: missing, and shipped all the same",
        "wrong b wrapped, and no gift",
    ]


def test_a_customer_who_was_told_nothing_or_something_else_is_found() -> None:
    assert texts(judge({"a": without(DELIVERED, "letter:delivered")})) == ["lost a nobody told the customer"]
    lied = (*without(DELIVERED, "letter:delivered"), "letter:kept")
    assert texts(judge({"a": lied})) == ["wrong a the customer was told kept, and it is delivered"]


def test_an_order_without_stock_leaves_nothing() -> None:
    assert texts(judge({"a": (*SHORT, "charge", "refund")})) == ["wrong a charge: without a reservation"]


@pytest.mark.parametrize("state", ["", "RUNNING", "MANUAL_REQUIRED", "COMPENSATION_FAILED", "COMPENSATED"])
def test_an_order_that_is_not_at_its_end_is_lost(state: str) -> None:
    verdict = judge({"a": DELIVERED}, states={"a": state})
    assert verdict.count("lost") == 1
    assert verdict.findings[0].text.startswith("not brought to its end")


def test_an_amount_that_differs_and_an_order_that_nobody_placed_are_found() -> None:
    effects = rows("a", *DELIVERED, amount="9.91") + rows("ghost", "charge")
    verdict = compare([placed("a")], {"a": "SUCCEEDED"}, effects, {}, Said())
    assert texts(verdict) == [
        "wrong a a-1: 9.91 for 9.90",
        "wrong a a-2: 9.91 for 9.90",
        "wrong ghost ghost-0: nobody placed this order",
    ]


def test_what_counts_is_the_last_thing_that_was_said() -> None:
    words = [
        Word("a", "refund", "reject", "ann", ""),
        Word("b", "payback_ok", "reject", "carol", ""),
        Word("a", "refund", "retry", "bob", ""),
        Word("a", "refund", "approve", "bob", ""),
    ]
    assert said(words) == Said(approved=frozenset("a"), refused=frozenset("b"))


def test_a_run_is_only_ok_when_it_has_shown_everything() -> None:
    words = [Word("b", "refund", word, "ann", "") for word in ("reject", "retry", "approve")]
    books = {"a": DELIVERED, "b": UNDONE, "c": KEPT, "d": SHORT}
    verdict = judge(books, words=Said(approved=frozenset("b"), refused=frozenset("c")))
    kills = [Kill("engine-1", 1, "")] * 3
    assert last_line(Result(verdict, kills, words, 1.0)) == (
        "order ok: 4 orders, 3 charged = 1 delivered + 1 refunded + 1 kept, 1 never charged (1 without stock), "
        "3 kills, 0 lost, 0 doubled, 0 wrong"
    )
    assert faults(verdict, 2, words[1:]) == [
        "2 kills instead of 3",
        "no person said reject, so it shows nothing about that",
    ]
    assert last_line(Result(judge({"a": DELIVERED}), kills, words, 1.0)).startswith("order failed: 1 orders")


def test_twenty_orders_hold_every_kind() -> None:
    found = orders("x", 20)
    assert {at_address(order.address) for order in found} == set(End)
    assert any(order.gift for order in found)
    assert stock(found) == {NONE_LEFT: 0, "last-0": 1}
    assert [order.order_id for order in rivals(found)["last-0"]] == ["x-017", "x-018"]


async def test_the_warehouse_counts_in_the_transaction_that_books(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "warehouse.sqlite", once={"reserve", "release"})
    limit = Limit(1, back="release")
    first, _ = await ledger.book("reserve", "k1", "o-1", subject="last", limit=limit)
    assert await ledger.book("reserve", "k1", "o-1", subject="last", limit=limit) == (first, False)
    with pytest.raises(LimitReached):
        await ledger.book("reserve", "k2", "o-2", subject="last", limit=limit)
    await ledger.book("reserve", "k3", "o-3", subject="tea", limit=Limit(None, back="release"))
    await ledger.book("release", "k1:undo", "o-1", subject=first.id)
    assert (await ledger.book("reserve", "k2", "o-2", subject="last", limit=limit))[1]
    assert [effect.order_id for effect in await ledger.find("reserve")] == ["o-1", "o-3", "o-2"]
    ledger.close()
