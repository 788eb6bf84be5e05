from decimal import Decimal

from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase): ...


class OrderRow(Base):
    __tablename__ = "orders"

    id: Mapped[str] = mapped_column(primary_key=True)
    state: Mapped[str]


class LedgerRow(Base):
    __tablename__ = "ledger"

    order_id: Mapped[str] = mapped_column(primary_key=True)
    amount: Mapped[Decimal]
