"""A notification as a saga: prepare, send, note the provider's id, wait for the report, record it."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal, TypeAlias

from milepost import (
    Absent,
    Context,
    Failed,
    Found,
    InProgress,
    Probe,
    Repeat,
    Retry,
    Saga,
    Then,
    Transaction,
)
from pydantic import BaseModel
from sqlalchemy import update

from .clients import Provider
from .contracts import Notify, Reported
from .tables import NotificationRow

#: How long a report may take before the provider is asked. Hours in a real service; here the end has to be seen.
REPORT_TIMEOUT = timedelta(seconds=5)
#: How long the provider may still send a message after that try's lease has ended; then "absent" counts.
SETTLE = timedelta(seconds=2)

PATIENT = Retry(attempts=10, first=timedelta(milliseconds=200), cap=timedelta(seconds=3))
TEXTS = {"welcome": "Welcome, {name}!", "reminder": "{name}, something waits for you."}

Ctx: TypeAlias = Context[Notify]

notification = Saga("notification", version=1, input=Notify, key=lambda job: job.id)


class Prepared(BaseModel):
    """What is to be sent."""

    text: str


class Sent(BaseModel):
    """The provider's id of the message, from its answer or from the look-up."""

    message_id: str


@notification.tx_step()
async def prepare(ctx: Ctx, tx: Transaction) -> Prepared:
    """Write the text, and note that it is about to be sent."""
    await _note(ctx, tx, state="SENDING")
    return Prepared(text=TEXTS[ctx.input.template].format(name=ctx.input.name))


@notification.step(repeat=Repeat.ASK_FIRST, retry=PATIENT)  # the provider would send it twice: ask first
async def send(ctx: Ctx) -> Sent:
    """Have it sent."""
    message_id = await ctx.use(Provider).send(
        ctx.input.recipient, ctx.result(prepare).text, reference=ctx.idempotency_key, tag=ctx.input.id
    )
    return Sent(message_id=message_id)


@send.probe(settle=SETTLE)
async def find_message(ctx: Ctx) -> Probe[Sent]:
    """Ask the provider what became of the call."""
    message_id = await ctx.use(Provider).find(reference=ctx.idempotency_key)
    return Absent() if message_id is None else Found(Sent(message_id=message_id))


@notification.tx_step()
async def note_sent(ctx: Ctx, tx: Transaction) -> None:
    """Note the provider's id where the service's own people look."""
    await _note(ctx, tx, state="SENT", message_id=ctx.result(send).message_id)


reported = notification.wait(
    "reported",
    Reported,
    match=lambda view: view.result(send).message_id,
    timeout=REPORT_TIMEOUT,
    on_timeout=Then.RECONCILE,  # no webhook came: ask
)


@reported.probe
async def ask_provider(ctx: Ctx) -> Probe[Reported]:
    """Ask the provider what became of the message."""
    message_id = ctx.result(send).message_id
    match await ctx.use(Provider).state(message_id):
        case "delivered" | "bounced" as outcome:
            known: Literal["delivered", "bounced"] = outcome
            return Found(Reported(message_id=message_id, outcome=known))
        case None:
            return Failed("MESSAGE_GONE")
        case _:
            return InProgress(ask_again=timedelta(seconds=1))


@notification.tx_step()
async def record(ctx: Ctx, tx: Transaction) -> None:
    """Note how it ended."""
    await _note(ctx, tx, state=ctx.result(reported).outcome.upper())


notification.flow(prepare, send, note_sent, reported, record)


async def _note(ctx: Ctx, tx: Transaction, **values: str) -> None:
    await tx.session.execute(
        update(NotificationRow).where(NotificationRow.id == ctx.input.id).values(**values)
    )
