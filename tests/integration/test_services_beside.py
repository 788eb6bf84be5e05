"""Two services with a saga of the same name on one database: neither decides about the other's runs."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from milepost import Command, Event, Repeat, Saga
from milepost.consumers.replies import Reply
from milepost.sagas.facts import Replied
from milepost.schemas.messages import TimerMessage, WorkMessage
from pydantic import BaseModel

from tests.support.engine import rig
from tests.support.workers import worker_on


class Order(BaseModel):
    id: str


class Booked(Event, type="beside.booked", topic="beside-trucks", key="truck"):
    truck: str


class Book(Command[Booked], type="beside.book", topic="beside-trucks", key="truck"):
    truck: str


def trip() -> Saga[Order]:
    saga = Saga("trip", version=1, input=Order, key=lambda order: order.id)
    book = saga.command(
        "book",
        lambda v: Book(truck=v.input.id),
        reply=Booked,
        timeout=timedelta(hours=1),
        repeat=Repeat.SAFE,
    )
    saga.flow(book, saga.timer("rest", timedelta(hours=8)))
    return saga


def replied(run: UUID) -> Reply:
    return Reply(run, Replied("book", "do", 1, "done", {"truck": "t"}, version=1, type="beside.booked"))


async def test_a_message_about_another_services_run_changes_nothing(database_url: str) -> None:
    saga = trip()
    async with (
        rig(database_url, saga, name="ours") as ours,
        rig(database_url, saga, name="theirs") as theirs,
        worker_on(database_url, theirs.service) as hand,
    ):
        run = await ours.start(saga, Order(id="o-1"))
        before = await ours.row("SELECT version, history_n FROM milepost.run")
        await theirs.orchestrator.act(replied(run.id))
        await theirs.orchestrator.act(TimerMessage(run=run.id, step=None, generation=0))
        await hand.worker.take(WorkMessage(run=run.id, saga="trip", definition=1, step="book"))
        assert await ours.row("SELECT version, history_n FROM milepost.run") == before
        topics = await ours.database.pool.fetch("SELECT DISTINCT topic FROM milepost.outbox")
        assert not [row["topic"] for row in topics if row["topic"].startswith("theirs.")]
        assert await ours.value("SELECT count(*) FROM milepost.handover") == 0
        await ours.orchestrator.act(replied(run.id))
        assert (await ours.states(run.id))["book"] == "SUCCEEDED"
