"""What a saga compiles to, and the fingerprints that pin it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from milepost.sagas import Context, Definitions, Saga
from milepost.schemas.errors import DefinitionError
from milepost.schemas.options import Repeat, Retry
from milepost.schemas.states import StepKind
from pydantic import BaseModel

from tests.support.sagas import Done, Order, add_step, add_tx, flow, new_saga


def test_a_definition_is_data() -> None:
    saga = Saga("order", version=3, input=Order, key=lambda o: o.id, queue="slow")
    add_step(saga, "reserve", undo=True)

    @saga.step(repeat=Repeat.SAFE, queue="fast", attempt_timeout=timedelta(seconds=5), no_undo="none needed")
    async def quick(ctx: Context[Order]) -> None: ...

    add_tx(saga, "close")
    definition = flow(saga)
    assert (definition.title, definition.id) == ("order v3", "order/3")
    assert definition.flow_text == "reserve > quick > close"
    assert [node.queue for node in definition.nodes] == ["slow", "fast", "slow"]
    assert [node.kind for node in definition.nodes] == [StepKind.STEP, StepKind.STEP, StepKind.TX]
    undo = definition.nodes[0].undo
    assert undo is not None
    assert (undo.name, undo.queue, undo.attempt_timeout) == ("undo_reserve", "slow", timedelta(seconds=30))
    assert definition.undone_by("undo_reserve") is definition.nodes[0]
    assert definition.summary() == "order v3: 3 steps, 1 undo, 0 probes"


def test_the_registry_knows_versions_side_by_side() -> None:
    one, two = new_saga(version=1), new_saga(version=2)
    for saga in (one, two):
        add_step(saga, "work")
        flow(saga)
    known = Definitions([two, one])
    assert known.ids == ["order/1", "order/2"]
    assert known.get("order", 2) is two.definition
    assert known.get("order", 3) is None
    assert known.queues == ["default"]
    assert len(known) == 2
    with pytest.raises(DefinitionError, match="MP110 order v1 is given twice"):
        Definitions([one, one])


# --- fingerprints -----------------------------------------------------------------------------------


def fingerprint(**options: Any) -> tuple[str, str]:
    saga = new_saga()
    add_step(saga, "one", **options)
    definition = flow(saga)
    return definition.shape, definition.policy


def test_tuning_a_retry_changes_the_policy_and_not_the_shape() -> None:
    plain, tuned = fingerprint(), fingerprint(retry=Retry(attempts=7))
    assert plain[0] == tuned[0]
    assert plain[1] != tuned[1]
    assert plain == fingerprint()


def test_names_undos_results_and_inputs_are_shape() -> None:
    class Described(BaseModel):
        """Words for people."""

        id: str

    class Wider(BaseModel):
        id: str
        title: str | None = None

    def shape_with(result: Any, of: Any = Order) -> str:
        saga: Saga[Any] = Saga("order", version=1, input=of, key=lambda o: o.id)

        async def one(ctx: Any) -> None: ...

        one.__annotations__["return"] = result
        saga.step(repeat=Repeat.SAFE)(one)
        return flow(saga).shape

    same_fields = shape_with(Done)
    assert shape_with(Described) == same_fields, "words and class names are no shape"
    assert shape_with(Wider) != same_fields
    assert shape_with(None) != same_fields
    assert shape_with(Done, Wider) != same_fields
    assert fingerprint(undo=True)[0] != fingerprint()[0]


def test_order_is_shape() -> None:
    shapes = set()
    for names in (("a", "b"), ("b", "a")):
        saga = new_saga()
        for name in names:
            add_step(saga, name)
        shapes.add(flow(saga).shape)
    assert len(shapes) == 2
