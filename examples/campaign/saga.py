"""A campaign as a saga of sagas: a first batch, the rest, and one run for each letter."""

from __future__ import annotations

from datetime import timedelta
from typing import TypeAlias

from milepost import Absent, Context, Found, Probe, Repeat, Retry, Saga, Then, Transaction
from pydantic import BaseModel
from sqlalchemy import update

from ..notify.clients import Provider
from .book import letter_tag
from .contracts import Letter, PlaceCampaign
from .recipients import Recipients
from .tables import CampaignRow, RecipientRow

#: Name of the limit on calls of the provider.
PROVIDER = "provider"
#: How long the provider may still send a message after that try's lease has ended; then "absent" counts.
SETTLE = timedelta(seconds=2)
#: So many letters are under way at a time.
AT_ONCE = 40

#: Long enough for a provider that is away for a minute.
PATIENT = Retry(attempts=30, first=timedelta(milliseconds=200), cap=timedelta(seconds=5))

LetterCtx: TypeAlias = Context[Letter]
Ctx: TypeAlias = Context[PlaceCampaign]

# --- one letter ---------------------------------------------------------------------------------

letter = Saga("letter", version=1, input=Letter, key=lambda to: f"{to.campaign_id}-{to.reader:05d}")


class Sent(BaseModel):
    """The provider's id of the message, from its answer or from the look-up."""

    message_id: str


@letter.step(repeat=Repeat.ASK_FIRST, retry=PATIENT, limits=PROVIDER)  # it would send it twice: ask first
async def send(ctx: LetterCtx) -> Sent:
    """Have it sent."""
    to = ctx.input
    message_id = await ctx.use(Provider).send(
        to.address,
        f"The {to.issue} issue",
        reference=ctx.idempotency_key,
        tag=letter_tag(to.issue, to.reader),
    )
    return Sent(message_id=message_id)


@send.probe(settle=SETTLE)
async def find_message(ctx: LetterCtx) -> Probe[Sent]:
    """Ask the provider what became of the call."""
    message_id = await ctx.use(Provider).find(reference=ctx.idempotency_key)
    return Absent() if message_id is None else Found(Sent(message_id=message_id))


@letter.tx_step(on_failure=Then.PERSON)
async def note_sent(ctx: LetterCtx, tx: Transaction) -> None:
    """Note the provider's id where the service's own people look."""
    mine = (RecipientRow.campaign_id == ctx.input.campaign_id, RecipientRow.reader == ctx.input.reader)
    await tx.session.execute(update(RecipientRow).where(*mine).values(message_id=ctx.result(send).message_id))


letter.flow(send, note_sent)

# --- the campaign -------------------------------------------------------------------------------

campaign = Saga("campaign", version=1, input=PlaceCampaign, key=lambda to: to.campaign_id)

#: The first batch. With fewer than nine of ten delivered a person looks before anybody else gets anything.
trial = campaign.each(
    "trial",
    letter,
    items=lambda ctx: ctx.use(Recipients).letters(ctx.input, trial=True),
    concurrency=AT_ONCE,
    min_success=0.9,
    on_failure=Then.PERSON,
)
#: Everybody else.
rest = campaign.each(
    "rest",
    letter,
    items=lambda ctx: ctx.use(Recipients).letters(ctx.input, trial=False),
    concurrency=AT_ONCE,
    min_success=0.95,
    on_failure=Then.PERSON,
)


@campaign.tx_step(on_failure=Then.PERSON)
async def note_end(ctx: Ctx, tx: Transaction) -> None:
    """Note how many have got it and how many have not: from then on those may have a campaign of their own."""
    batches = (ctx.result(trial), ctx.result(rest))
    numbers = {
        "sent": sum(batch.succeeded for batch in batches),
        "failed": sum(batch.failed for batch in batches),
    }
    row = CampaignRow.id == ctx.input.campaign_id
    await tx.session.execute(update(CampaignRow).where(row).values(**numbers))


campaign.flow(trial, rest, note_end)
