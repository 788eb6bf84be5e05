"""The example of docs/locks.md, as it stands there: two orders for the last item."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import milepost
from milepost import Milepost, RunState
from milepost.testing import open_kit
from pydantic import BaseModel

from tests.support.kitshop import NOWHERE

PAGE = Path(__file__).parents[3] / "docs" / "locks.md"


class Warehouse:
    """Has one item."""

    def __init__(self) -> None:
        self.left = 1
        self.ledger: list[str] = []

    async def reserve(self, sku: str, *, key: str) -> bool:
        self.left -= 1
        self.ledger.append("reserved" if self.left >= 0 else "sold out")
        return self.left >= 0

    async def ship(self, order: str, *, key: str) -> None:
        self.ledger.append(f"{order} shipped")


async def test_two_orders_for_the_last_item() -> None:
    (example,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    names: dict[str, Any] = {"BaseModel": BaseModel, "Warehouse": Warehouse, "__name__": "page"}
    names |= {name: getattr(milepost, name) for name in ("Context", "Refused", "Repeat", "Saga")}
    exec(compile(example, str(PAGE), "exec", dont_inherit=True), names)
    order, warehouse = names["order"], Warehouse()
    service = Milepost("page", sagas=[order], settings=NOWHERE)
    async with open_kit(service) as kit:
        kit.provide(Warehouse, warehouse)
        first = await kit.start(order, names["Order"](order_id="o-1", sku="tea"))
        second = await kit.start(order, names["Order"](order_id="o-2", sku="tea"))
        await kit.until(first, RunState.SUCCEEDED)
        await kit.until(second, RunState.FAILED)
    assert warehouse.ledger == ["reserved", "o-1 shipped", "sold out"]
