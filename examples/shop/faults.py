"""What goes wrong with which order: by its number, so that every run of the demo meets the same faults.

Twenty orders in a row hold every fault at least once.
"""

from __future__ import annotations

from enum import StrEnum


class BankFault(StrEnum):
    """How the bank treats the first charge of an order."""

    NONE = "none"
    DECLINES = "declines"
    """402, nothing booked."""
    LATE = "late"
    """Books, and answers after the shop has given up waiting."""
    SILENT = "silent"
    """Books, and drops the connection instead of answering."""
    LOST = "lost"
    """Drops the connection without having booked anything."""


class CarrierFault(StrEnum):
    """How the carrier treats a parcel."""

    NONE = "none"
    REFUSES = "refuses"
    """409, no parcel taken: the charge has to be paid back."""
    NEVER = "never"
    """Takes the parcel and never reports a delivery."""
    EARLY = "early"
    """Reports the delivery before it answers the shop's call."""
    TWICE = "twice"
    """Reports the delivery twice."""


class End(StrEnum):
    """What becomes of a parcel with an address."""

    DELIVERED = "delivered"
    RETURNED = "returned"
    LOST = "lost"
    REFUSED = "refused"
    """409, no parcel taken."""


_ADDRESSES = {"moved away": End.RETURNED, "at sea": End.LOST, "nowhere": End.REFUSED}
_BANK = {
    3: BankFault.DECLINES,
    5: BankFault.LATE,
    7: BankFault.SILENT,
    13: BankFault.DECLINES,
    19: BankFault.LOST,
}
_CARRIER = {
    1: CarrierFault.NEVER,
    2: CarrierFault.EARLY,
    4: CarrierFault.TWICE,
    7: CarrierFault.EARLY,
    12: CarrierFault.EARLY,
    14: CarrierFault.TWICE,
    16: CarrierFault.REFUSES,
}


def number_of(order_id: str) -> int:
    """Return the order's number: the digits its id ends with, 0 without any."""
    digits = order_id[len(order_id.rstrip("0123456789")) :]
    return int(digits or 0)


def bank_fault(order_id: str) -> BankFault:
    """Return how the bank treats this order's first charge."""
    return _BANK.get(number_of(order_id) % 20, BankFault.NONE)


def carrier_fault(order_id: str) -> CarrierFault:
    """Return how the carrier treats this order's parcel."""
    return _CARRIER.get(number_of(order_id) % 20, CarrierFault.NONE)


def at_address(address: str) -> End:
    """Return what becomes of a parcel to this address."""
    return _ADDRESSES.get(address, End.DELIVERED)
