"""The sagas whose steps are counted, and their service as `milepost serve` loads it."""

from __future__ import annotations

from milepost import Context, Milepost, Repeat, Saga
from pydantic import BaseModel

STEPS = 5
#: Steps of one queue are taken one after the other by one worker; between these two each goes over Kafka.
QUEUES = ("near", "far")


class Order(BaseModel):
    """Input."""

    id: str


class Number(BaseModel):
    """Result of a step."""

    value: int = 1


def saga_of(name: str, *queues: str) -> Saga[Order]:
    """Return a saga of five steps that do nothing, the n-th in the n-th queue, from the first again after the last."""
    saga = Saga(name, version=1, input=Order, key=lambda order: order.id)
    for n in range(STEPS):

        async def step(ctx: Context[Order]) -> Number:
            return Number()

        saga.step(repeat=Repeat.SAFE, name=f"s{n}", queue=queues[n % len(queues)], no_undo="nothing is done")(
            step
        )
    saga.flow(*saga.nodes)
    return saga


local = saga_of("local", "default")
remote = saga_of("remote", *QUEUES)
SAGAS = (local, remote)
service = Milepost("flows", sagas=SAGAS)
