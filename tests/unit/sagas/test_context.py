"""What lambdas and steps see, and how inputs and results become JSON and come back."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from milepost.sagas import Context, RunRef, Saga, Step, View, Wait, codec, encode_result, operation_key
from milepost.sagas.purse import Purse
from milepost.schemas.errors import DefinitionError, UsageError
from milepost.schemas.events import Event
from milepost.schemas.options import Repeat, Then
from milepost.schemas.states import StepState
from pydantic import BaseModel, Field

from tests.support.sagas import RUN_ID, Delivered, Done, Order, Play, add_step, flow, new_saga


class Rich(BaseModel):
    amount: Decimal
    at: datetime
    by: str = Field(alias="By")


def shop() -> tuple[Play, Step[Order, Done], Wait[Order, Delivered]]:
    saga = new_saga()
    ship = add_step(saga, "ship")
    wait = saga.wait(
        "delivered",
        Delivered,
        match=lambda v: v.input.id,
        timeout=timedelta(days=1),
        on_timeout=Then.CONTINUE,
    )
    add_step(saga, "close")
    return Play(flow(saga)), ship, wait


def context(play: Play, reader: str = "close", **options: Any) -> Context[Order]:
    async def beat(progress: BaseModel | None) -> None: ...

    values: dict[str, Any] = {
        "use": lambda kind: kind(),
        "emitted": [],
        "should_stop": lambda: False,
        "beat": beat,
        "purse": Purse(play.definition, None, play.run, None),
    }
    return Context(
        play.definition, play.run, reader=reader, idempotency_key="k", attempt=2, **(values | options)
    )


def test_a_view_reads_input_run_and_results_as_their_classes() -> None:
    play, ship, wait = shop()
    play.succeed("ship")
    play.signal("delivered", {"id": "T-9", "unknown": True})
    view: View[Order] = View(play.definition, play.run)
    assert view.input == Order(id="o-1")
    assert view.run == RunRef(RUN_ID, "", "order", "o-1")
    assert str(view.run) == "order/o-1"
    assert view.result(ship) == Done(id="ship")
    assert view.result(wait) == Delivered(id="T-9")


def test_reading_what_has_not_run_is_mp104_with_the_flow() -> None:
    play, ship, wait = shop()
    with pytest.raises(DefinitionError) as caught:
        context(play, "ship").result(wait)
    assert str(caught.value) == (
        "MP104 order v1, step ship reads the result of delivered, which runs later. Flow: ship > delivered > close. "
        "Move ship after delivered."
    )
    assert context(play).result(ship, default=None) is None
    stranger = add_step(new_saga("other"), "stranger")
    with pytest.raises(DefinitionError, match=r"MP104 .*which is not in its flow"):
        context(play).result(stranger)


def test_a_wait_that_timed_out_has_no_result_but_a_default() -> None:
    play, _, wait = shop()
    play.succeed("ship")
    play.wake("delivered")
    assert play.state("delivered") is StepState.SKIPPED
    assert context(play).result(wait, default=7) == 7
    with pytest.raises(DefinitionError, match=r"MP104 .*skipped or timed out and left none.*default=None"):
        context(play).result(wait)


def test_a_context_hands_on_what_it_was_given() -> None:
    play, _, _ = shop()
    emitted: list[Event] = []
    ctx = context(play, emitted=emitted, should_stop=lambda: True, use=lambda kind: {dict: {"a": 1}}[kind])
    ctx.emit(Delivered(id="x"))
    assert emitted == [Delivered(id="x")]
    assert ctx.should_stop()
    assert ctx.use(dict) == {"a": 1}
    assert (ctx.idempotency_key, ctx.attempt) == ("k", 2)


def test_operation_keys_never_hold_the_attempt() -> None:
    run = UUID(int=1)
    assert operation_key(run, "ship") == f"{run}:ship"
    assert operation_key(run, "ship", undo=True) == f"{run}:ship:undo"


# --- JSON -------------------------------------------------------------------------------------------


def returning(model: Any) -> Any:
    saga = new_saga()

    async def work(ctx: Any) -> None: ...

    work.__annotations__["return"] = model
    saga.step(repeat=Repeat.SAFE)(work)
    return flow(saga)


def test_a_result_comes_back_as_it_went() -> None:
    definition = returning(Rich)
    node = definition.nodes[0]
    value = Rich(amount=Decimal("9.90"), at=datetime(2026, 1, 1, tzinfo=UTC), By="ann")
    stored = encode_result(definition, node, value)
    assert stored == {"amount": "9.90", "at": "2026-01-01T00:00:00Z", "By": "ann"}
    assert node.decode(stored) == value


def test_a_subclass_is_stored_as_the_declared_class() -> None:
    class More(Done):
        extra: int = 1

    definition = returning(Done)
    assert encode_result(definition, definition.nodes[0], More(id="x")) == {"id": "x"}


def test_none_is_stored_as_none() -> None:
    definition = returning(None)
    assert encode_result(definition, definition.nodes[0], None) is None
    assert definition.nodes[0].decode(None) is None


@pytest.mark.parametrize(
    ("declared", "returned"), [(Done, {"id": "x"}), (Done, None), (None, Done(id="x")), (Done, Order(id="x"))]
)
def test_a_result_of_another_class_is_refused(declared: Any, returned: Any) -> None:
    definition = returning(declared)
    with pytest.raises(UsageError, match="MP341 order v1, step work: result is"):
        encode_result(definition, definition.nodes[0], returned)


class Number(BaseModel):
    value: float


@pytest.mark.parametrize(
    "value",
    [
        Done(id="a\x00b"),
        Done.model_construct(id="\ud800"),
        Number(value=float("nan")),
        Number(value=float("inf")),
    ],
)
def test_what_the_database_cannot_hold_is_refused_with_a_reason(value: BaseModel) -> None:
    definition = returning(type(value))
    with pytest.raises(UsageError, match="MP342 order v1, step work: result"):
        encode_result(definition, definition.nodes[0], value)


def test_the_six_characters_of_an_escape_are_ordinary_text() -> None:
    definition = returning(Done)
    value = Done(id="\\u0000 and \\\\u0000 and 🚂")
    assert definition.nodes[0].decode(encode_result(definition, definition.nodes[0], value)) == value


def test_the_hash_of_an_input_is_that_of_its_canonical_json() -> None:
    definition = returning(None)
    stored, digest = definition.encode_input(Order(id="ü"))
    assert stored == {"id": "ü"}
    assert digest == hashlib.sha256('{"id":"ü"}'.encode()).digest()
    assert codec.canonical_json({"b": [1, None], "a": "x"}) == b'{"a":"x","b":[1,null]}'
    with pytest.raises(UsageError, match="MP340 order v1 takes Order, not Done"):
        definition.encode_input(Done(id="x"))


def test_a_key_is_a_short_text() -> None:
    for bad in ("", "x" * 513, 7, "a\x00"):
        saga: Saga[Order] = Saga("order", version=1, input=Order, key=lambda o, bad=bad: bad)  # type: ignore[misc]
        add_step(saga, "one")
        with pytest.raises(UsageError, match="MP343"):
            flow(saga).key_of(Order(id="x"))


def test_results_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    play, ship, _ = shop()
    play.succeed("ship")
    view: View[Order] = View(play.definition, replace(play.run))
    assert view.result(ship) is view.result(ship)
