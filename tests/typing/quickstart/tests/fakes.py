from decimal import Decimal

from milepost import Transaction
from milepost.testing import Kit
from shop.clients import Carrier, Payments, Warehouse
from shop.tables import Base


async def make_tables(tx: Transaction) -> None:
    await tx.session.run_sync(lambda session: Base.metadata.create_all(session.connection()))


class FakePayments(Payments):
    def __init__(self) -> None:
        self.charges: dict[str, str] = {}

    async def charge(self, amount: Decimal, *, reference: str) -> str:
        self.charges[reference] = f"c-{len(self.charges) + 1}"
        return self.charges[reference]

    async def find(self, *, reference: str) -> str | None:
        return self.charges.get(reference)

    async def invoice(self, charge: str) -> str:
        return f"https://invoices.example/{charge}"

    async def refund(self, charge: str, *, reference: str) -> None: ...


class FakeWarehouse(Warehouse):
    def __init__(self) -> None: ...

    async def reserve(self, sku: str, *, key: str) -> str:
        return f"r-{sku}"

    async def pack(self, reservation: str) -> None: ...

    async def release(self, reservation: str) -> None: ...


class FakeCarrier(Carrier):
    def __init__(self) -> None: ...

    async def ship(self, order: str, *, key: str) -> str:
        return f"t-{order}"


def provide_fakes(kit: Kit) -> None:
    kit.provide(Warehouse, FakeWarehouse())
    kit.provide(Carrier, FakeCarrier())
    kit.provide(Payments, FakePayments())
