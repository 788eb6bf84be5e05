"""The shop's own tables. They know nothing of Milepost."""

from __future__ import annotations

from decimal import Decimal

from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    """Metadata of the shop."""


class OrderRow(Base):
    """An order: NEW when placed, DONE when the saga has closed it."""

    __tablename__ = "shop_order"

    id: Mapped[str] = mapped_column(primary_key=True)
    amount: Mapped[Decimal]
    state: Mapped[str]


class LedgerRow(Base):
    """What billing has booked.

    Deliberately without a unique constraint on order_id: that every order is booked once is Milepost's work
    here, and a second booking is to be seen.
    """

    __tablename__ = "shop_ledger"

    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[str] = mapped_column(index=True)
    amount: Mapped[Decimal]
