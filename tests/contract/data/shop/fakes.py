"""Fakes for the quickstart's test; it lies in shop/tests there."""

from __future__ import annotations

from decimal import Decimal

from milepost import Transaction
from milepost.testing import Kit
from shop.clients import Carrier, Payments, Warehouse
from shop.tables import Base


class FakePayments(Payments):
    """A bank that does not dedupe."""

    def __init__(self) -> None:
        self.charges: list[str] = []

    async def charge(self, amount: Decimal, *, reference: str) -> str:
        self.charges.append(reference)
        return f"C-{reference}"

    async def find(self, *, reference: str) -> str | None:
        return f"C-{reference}" if reference in self.charges else None


def provide_fakes(kit: Kit) -> None:
    """Provide the clients that a test has no questions to."""
    kit.provide(Warehouse, Warehouse())
    kit.provide(Carrier, Carrier())


async def make_tables(tx: Transaction) -> None:
    """Make the shop's own tables."""
    await tx.session.run_sync(lambda session: Base.metadata.create_all(session.connection()))
