"""The service's own tables. They know nothing of Milepost."""

from __future__ import annotations

from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    """Metadata of the service."""


class ReaderRow(Base):
    """A reader, with the address of today."""

    __tablename__ = "reader"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    address: Mapped[str]
    audience: Mapped[str] = mapped_column(index=True)


class CampaignRow(Base):
    """A campaign.

    Attributes:
        sent: How many have got it; noted when it has ended, as `failed` is.
        failed: How many it could not be delivered to.
    """

    __tablename__ = "campaign"

    id: Mapped[str] = mapped_column(primary_key=True)
    issue: Mapped[str]
    sent: Mapped[int | None]
    failed: Mapped[int | None]


class RecipientRow(Base):
    """A reader to whom a campaign goes, as they were when it was placed: who joins the list later is not among them.

    Attributes:
        n: Their place in the campaign, from 0.
        message_id: The provider's id of the message; None as long as it has not been sent.
    """

    __tablename__ = "recipient"

    campaign_id: Mapped[str] = mapped_column(primary_key=True)
    n: Mapped[int] = mapped_column(primary_key=True)
    reader: Mapped[int]
    address: Mapped[str]
    message_id: Mapped[str | None]
