"""The parts of the shop example that need no server: the ledgers and the table of faults."""

from __future__ import annotations

from pathlib import Path

import pytest
from milepost.examples.shop.faults import BankFault, CarrierFault, bank_fault, carrier_fault, number_of
from milepost.examples.shop.ledger import Ledger


@pytest.mark.parametrize(
    ("order_id", "number"), [("7c1f-017", 17), ("a-0", 0), ("17", 17), ("none", 0), ("a1-", 0)]
)
def test_the_number_is_what_the_id_ends_with(order_id: str, number: int) -> None:
    assert number_of(order_id) == number


def test_twenty_orders_meet_every_fault_and_most_meet_none() -> None:
    ids = [f"x-{n:03d}" for n in range(100, 120)]
    assert {bank_fault(order_id) for order_id in ids} == set(BankFault)
    assert {carrier_fault(order_id) for order_id in ids} == set(CarrierFault)
    quiet = [i for i in ids if (bank_fault(i), carrier_fault(i)) == (BankFault.NONE, CarrierFault.NONE)]
    assert len(quiet) >= 8


async def test_a_ledger_books_what_is_once_once_and_the_rest_each_time(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "bank.sqlite", once={"refund"})
    charge, _ = await ledger.book("charge", "r", "o-1", amount="9.90")
    await ledger.book("charge", "r", "o-1", amount="9.90")
    first = await ledger.book("refund", "r:undo", "o-1", subject=charge.id, amount="9.90")
    again = await ledger.book("refund", "r:undo", "o-1", subject=charge.id, amount="9.90")
    assert [first[1], again[1]] == [True, False]
    assert first[0] == again[0]
    assert [effect.kind for effect in ledger.all()] == ["charge", "charge", "refund"]
    assert await ledger.find("charge", number=charge.id) == [charge]
    assert await ledger.find("charge", number="no-number") == []
    assert await ledger.find("refund", subject=charge.id) == [first[0]]
    ledger.close()


async def test_a_ledger_is_on_disk_before_anybody_is_told(tmp_path: Path) -> None:
    path = tmp_path / "carrier.sqlite"
    writer = Ledger(path, once={"ship"})
    effect, _ = await writer.book("ship", "k", "o-1")
    reader = Ledger(path, once={"ship"})
    assert reader.all() == [effect]
    reader.close()
    writer.close()
