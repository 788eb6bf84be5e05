"""The sagas whose steps are counted, and their service as `milepost serve` loads it."""

from __future__ import annotations

from datetime import timedelta

from milepost import Command, Context, Event, Milepost, Repeat, Saga, Transaction
from pydantic import BaseModel

STEPS = 5


class Order(BaseModel):
    """Input."""

    id: str


class Number(BaseModel):
    """Result of a step."""

    value: int = 1


class Counted(Event, type="bench.counted", topic="bench-counted", key="id"):
    """Reply of the participant."""

    id: str
    value: int = 1


class Count(Command[Counted], type="bench.count", topic="bench-counts", key="id"):
    """What the participant is asked for."""

    id: str


def saga_of_steps(name: str) -> Saga[Order]:
    """Return a saga of five steps that do nothing."""
    saga = Saga(name, version=1, input=Order, key=lambda order: order.id)
    for n in range(STEPS):

        async def step(ctx: Context[Order]) -> Number:
            return Number()

        saga.step(repeat=Repeat.SAFE, name=f"s{n}", no_undo="nothing is done")(step)
    saga.flow(*saga.nodes)
    return saga


def saga_of_commands(name: str) -> Saga[Order]:
    """Return a saga of five commands, one after the other, each answered by the participant over Kafka."""
    saga = Saga(name, version=1, input=Order, key=lambda order: order.id)
    for n in range(STEPS):
        saga.command(
            f"c{n}",
            lambda view: Count(id=view.input.id),
            reply=Counted,
            timeout=timedelta(minutes=1),
            repeat=Repeat.SAFE,
            no_undo="nothing is done",
        )
    saga.flow(*saga.nodes)
    return saga


local, remote = saga_of_steps("local"), saga_of_commands("remote")
SAGAS = (local, remote)
service = Milepost("flows", sagas=SAGAS)
participant = service.consumer("bench-participant")


@participant.answers(Count, Counted)
async def count(command: Count, tx: Transaction) -> Counted:
    """Do nothing, in the transaction that marks the command as done and sends the reply."""
    return Counted(id=command.id)
