"""The shop's own tables. They know nothing of Milepost."""

from __future__ import annotations

from decimal import Decimal

from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    """Metadata of the shop."""


class OrderRow(Base):
    """An order.

    Attributes:
        state: NEW; OPEN once the saga has begun; then DELIVERED, REFUNDED or KEPT (a person has refused to pay back).
            One that was undone stays OPEN: its run says why.
    """

    __tablename__ = "customer_order"

    id: Mapped[str] = mapped_column(primary_key=True)
    state: Mapped[str]


class InvoiceRow(Base):
    """An invoice. Deliberately without a unique constraint on order_id, so that a second one would be seen."""

    __tablename__ = "customer_invoice"

    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[str] = mapped_column(index=True)
    amount: Mapped[Decimal]
