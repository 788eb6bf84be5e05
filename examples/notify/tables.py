"""The service's own table. It knows nothing of Milepost."""

from __future__ import annotations

from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    """Metadata of the service."""


class NotificationRow(Base):
    """A notification.

    Attributes:
        id: The caller's idempotency key.
        state: QUEUED, SENDING, SENT, DELIVERED or BOUNCED, as far as the service has come.
        message_id: The provider's id of the message, from the moment that it is known.
    """

    __tablename__ = "notification"

    id: Mapped[str] = mapped_column(primary_key=True)
    recipient: Mapped[str]
    state: Mapped[str]
    message_id: Mapped[str | None]
