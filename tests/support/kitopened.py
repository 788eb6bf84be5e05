"""A kit on the shop, with all companies."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from milepost import (
    Milepost,
)
from milepost.testing import Kit, open_kit

from tests.support.kitshop import (
    Companies,
    PlaceOrder,
    make_tables,
    shop,
)

ORDER = PlaceOrder(order_id="o-1")


@pytest.fixture
async def service() -> Milepost:
    """A shop."""
    return shop()


@pytest.fixture
async def kit(service: Milepost) -> AsyncIterator[Kit]:
    """A kit on it with all companies."""
    async with open_kit(service, prepare=make_tables) as kit:
        Companies().provide(kit)
        yield kit
