"""Which orders come in, by number, so that each run meets the same: twenty in a row hold every kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

#: What the demo sells, of which there is always enough.
PLENTY = "tea"
#: What has been sold already.
NONE_LEFT = "sold-out"

#: Numbers within twenty. The bank's and the carrier's own troubles are in `shop.faults`, by the same number.
_SOLD_OUT = {11}
_LAST_ITEM = {17, 18}
_GIFTS = {0, 4, 8, 12}
_ADDRESSES = {6: "moved away", 9: "at sea", 10: "at sea", 15: "nowhere"}
#: The claim of which the person says no, and the refund of which the first person says no and a second one yes.
_CLAIM_REFUSED = 10
_REFUND_REJECTED_FIRST = 15


@dataclass(frozen=True, slots=True)
class Placed:
    """An order as it is sent to the shop.

    Attributes:
        amount: Money as decimal text.
    """

    order_id: str
    sku: str
    amount: str
    address: str
    gift: bool

    def as_json(self) -> dict[str, object]:
        """Return the fields as the API takes them."""
        return {name: getattr(self, name) for name in self.__slots__}


def orders(tag: str, count: int) -> list[Placed]:
    """Return the orders of one run, in the order in which they come in.

    Args:
        tag: Begins each id.
        count: How many.
    """
    return [_order(tag, n) for n in range(count)]


def stock(placed: Sequence[Placed]) -> dict[str, int]:
    """Return what the warehouse has of what is scarce."""
    scarce = {order.sku: 1 for order in placed if order.sku != PLENTY}
    return {**scarce, NONE_LEFT: 0}


def rivals(placed: Sequence[Placed]) -> Mapping[str, Sequence[Placed]]:
    """Return the orders that come in at the same instant, because they want the same last item."""
    found: dict[str, list[Placed]] = {}
    for order in placed:
        if order.sku not in (PLENTY, NONE_LEFT):
            found.setdefault(order.sku, []).append(order)
    return found


def claim_is_refused(n: int) -> bool:
    """Tell whether the person refuses to pay this order's lost parcel."""
    return n % 20 == _CLAIM_REFUSED


def rejected_first(n: int) -> bool:
    """Tell whether the first person who is asked rejects this order's refund."""
    return n % 20 == _REFUND_REJECTED_FIRST


def _order(tag: str, n: int) -> Placed:
    kind = n % 20
    sku = NONE_LEFT if kind in _SOLD_OUT else PLENTY
    return Placed(
        order_id=f"{tag}-{n:03d}",
        sku=f"last-{n // 20}" if kind in _LAST_ITEM else sku,
        amount=f"{10 + n % 90}.{n % 100:02d}",
        address=_ADDRESSES.get(kind, "1 High Street"),
        gift=kind in _GIFTS,
    )
