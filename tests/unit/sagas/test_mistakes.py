"""Further mistakes in declaring a saga."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from milepost.sagas import Context, Saga
from milepost.schemas.errors import DefinitionError
from milepost.schemas.events import Event
from milepost.schemas.options import Absent, Probe, Repeat, Retry, Then
from pydantic import BaseModel, SecretStr

from tests.support.sagas import Done, Order, add_step, add_tx, flow, new_saga
from tests.support.waits import DAY, add_wait

if TYPE_CHECKING:
    from decimal import Decimal as OnlyForTypes


class Mute(Event, type="test.mute", topic="deliveries"):
    id: str


class Secret(BaseModel):
    token: SecretStr


class Odd(BaseModel):
    model_config = {"arbitrary_types_allowed": True}
    thing: Callable[[], None]


def test_mp107_a_step_must_say_what_it_returns() -> None:
    saga = new_saga()

    async def nothing(ctx):  # type: ignore[no-untyped-def]
        return None

    async def a_dict(ctx: Context[Order]) -> dict[str, str]:
        return {}

    async def hidden(ctx: Context[Order]) -> OnlyForTypes:
        raise NotImplementedError

    def blocking(ctx: Context[Order]) -> Done:
        return Done(id="x")

    for fn, words in (
        (nothing, "found nothing"),
        (a_dict, "found dict"),
        (hidden, "cannot be found"),
        (blocking, "async"),
    ):
        with pytest.raises(DefinitionError, match=f"MP107.*{words}"):
            saga.step(repeat=Repeat.SAFE)(fn)  # type: ignore[arg-type]


def test_mp107_a_result_must_fit_into_json() -> None:
    saga = new_saga()

    @saga.step(repeat=Repeat.SAFE)
    async def odd(ctx: Context[Order]) -> Odd:
        raise NotImplementedError

    with pytest.raises(DefinitionError, match="MP107 order v1, odd: Odd cannot be stored as JSON"):
        flow(saga)


def test_mp115_a_secret_is_not_stored() -> None:
    saga = new_saga()

    @saga.step(repeat=Repeat.SAFE)
    async def log_in(ctx: Context[Order]) -> Secret:
        raise NotImplementedError

    with pytest.raises(DefinitionError, match="MP115 order v1, log_in: Secret has a secret field"):
        flow(saga)
    other = Saga("other", version=1, input=Secret, key=lambda s: "k")

    @other.step(repeat=Repeat.SAFE)
    async def work(ctx: Context[Secret]) -> None: ...

    with pytest.raises(DefinitionError, match="MP115 other v1, input"):
        other.flow(work)


def test_only_the_return_annotation_has_to_be_found() -> None:
    saga = new_saga()

    @saga.step(repeat=Repeat.SAFE)  # type: ignore[arg-type]
    async def work(ctx: OnlyForTypes) -> Done:
        raise NotImplementedError

    assert flow(saga).nodes[0].result is Done


def test_mp108_an_event_without_correlation_cannot_be_awaited() -> None:
    saga = new_saga()
    add_wait(saga, event=Mute)
    with pytest.raises(
        DefinitionError, match="MP108 order v1, wait delivered: event Mute declares no correlate="
    ):
        flow(saga)


def test_mp109_reconcile_without_a_probe() -> None:
    saga = new_saga()
    add_wait(saga, on_timeout=Then.RECONCILE)
    with pytest.raises(
        DefinitionError, match="MP109 order v1, wait delivered: on_timeout=RECONCILE needs a probe"
    ):
        flow(saga)


def test_mp110_names_are_shared_by_steps_waits_and_undos() -> None:
    saga = new_saga()
    one = add_step(saga, "one", undo=True)
    with pytest.raises(DefinitionError, match="MP110 order v1: step one and step one have the same name"):
        add_step(saga, "one")
    with pytest.raises(DefinitionError, match="MP110 order v1: wait undo_one and undo of one have"):
        add_wait(saga, "undo_one")
    with pytest.raises(DefinitionError, match="MP110 order v1, step one: a second undo"):

        @one.undo
        async def again(ctx: Context[Order], done: Done) -> None: ...

    with pytest.raises(DefinitionError, match=r"MP110 order v1: one is twice in flow"):
        saga.flow(one, one)


def test_mp110_a_second_probe() -> None:
    saga = new_saga()
    one = add_step(saga, "one", Repeat.ASK_FIRST, probe=True)
    with pytest.raises(DefinitionError, match="MP110 order v1, one: a second probe"):

        @one.probe
        async def again(ctx: Context[Order]) -> Probe[Done]:
            return Absent()


def test_mp111_flow_is_called_once_and_last() -> None:
    saga = new_saga()
    with pytest.raises(DefinitionError, match=r"MP111 order v1: flow\(...\) was never called"):
        _ = saga.definition
    with pytest.raises(DefinitionError, match=r"MP111 order v1: flow\(...\) is empty"):
        saga.flow()
    one = add_step(saga, "one")
    saga.flow(one)
    for late in (
        lambda: saga.flow(one),
        lambda: add_step(saga, "two"),
        lambda: add_step(saga, "two", undo=True),
        lambda: add_wait(saga),
        lambda: one.undo(_undo),
        lambda: one.probe(_probe),
    ):
        with pytest.raises(DefinitionError, match="MP111"):
            late()


async def _undo(ctx: Context[Order], done: Done) -> None: ...


async def _probe(ctx: Context[Order]) -> Probe[Done]:
    return Absent()


def test_mp112_a_step_of_another_saga() -> None:
    saga, other = new_saga(), new_saga("refund")
    with pytest.raises(DefinitionError, match=r"MP112 order v1: strange in flow\(...\) belongs to refund v1"):
        saga.flow(add_step(other, "strange"))
    with pytest.raises(DefinitionError, match=r"MP112 order v1: flow\(...\) was given"):
        saga.flow("one")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("retry", "words"),
    [
        (Retry(attempts=0), "attempts=0 must be 1 or more"),
        (Retry(first=timedelta(seconds=-1)), "first=.* must not be negative"),
        (Retry(factor=0.5), "factor=0.5 must be from 1 to 100"),
        (Retry(factor=float("nan")), "factor=nan must be"),
        (Retry(first=DAY), "cap=.* must be at least first="),
        (Retry(within=timedelta(0)), "within=.* must be longer than zero"),
    ],
)
def test_mp113_bounds_of_retry(retry: Retry, words: str) -> None:
    saga = new_saga()
    add_step(saga, "one", retry=retry)
    with pytest.raises(DefinitionError, match=f"MP113 order v1, one: retry {words}"):
        flow(saga)
    saga = new_saga()
    add_step(saga, "one", undo=True, undo_retry=retry)
    with pytest.raises(DefinitionError, match=f"MP113 order v1, one, undo undo_one: retry {words}"):
        flow(saga)


@pytest.mark.parametrize(
    ("declare", "words"),
    [
        (lambda s: add_wait(s, timeout=timedelta(0)), "timeout=0:00:00 must be longer than zero"),
        (lambda s: add_wait(s, on_timeout=Then.FAIL), "on_timeout=Then.FAIL ends no wait"),
        (
            lambda s: add_tx(s, "tx", attempt_timeout=timedelta(days=9999)),
            "attempt_timeout=.* at most ten years",
        ),
        (lambda s: add_step(s, "a", on_failure=Then.CANCEL), "on_failure=Then.CANCEL is none of"),  # type: ignore[arg-type]
        (lambda s: add_step(s, "a", no_undo=" "), "no_undo is empty"),
        (lambda s: add_step(s, "a", undo=True, no_undo="x"), "it has an undo and says"),
        (lambda s: add_step(s, "a", undo=True, irreversible=True), "it has an undo and says"),
        (
            lambda s: add_step(s, "a", Repeat.ASK_FIRST, probe=True, settle=DAY, give_up=DAY),
            "settle=.* must be shorter than give_up=",
        ),
    ],
)
def test_mp113_bounds(declare: Callable[[Saga[Order]], Any], words: str) -> None:
    saga = new_saga()
    declare(saga)
    with pytest.raises(DefinitionError, match=f"MP113 .*{words}"):
        flow(saga)


def test_mp114_names_fit_into_topics_and_keys() -> None:
    for bad in ("", "Order", "a/b", "a b", "ä"):
        with pytest.raises(DefinitionError, match="MP114"):
            new_saga(bad)
    with pytest.raises(DefinitionError, match="MP114 saga order: version=0"):
        new_saga(version=0)
    saga = new_saga()
    for bad in ("", "a/b", "a:b", "<lambda>"):
        with pytest.raises(DefinitionError, match="MP114"):
            add_step(saga, bad)
    with pytest.raises(DefinitionError, match=r"MP114 order v1, step x: queue 'a\.b'"):
        saga.step(repeat=Repeat.SAFE, name="x", queue="a.b")(_work)
    with pytest.raises(DefinitionError, match="MP114"):
        Saga("order", version=1, input=Order, key=lambda o: o.id, queue="no/slash")


async def _work(ctx: Context[Order]) -> None: ...


def test_mp116_a_probe_that_nobody_would_ask() -> None:
    saga = new_saga()
    add_step(saga, "one", Repeat.NEVER, probe=True)
    with pytest.raises(DefinitionError, match="MP116 order v1, step one says repeat=NEVER"):
        flow(saga)
    saga = new_saga()
    add_tx(saga, "one").probe(_no_probe)
    with pytest.raises(DefinitionError, match="MP116 order v1, step one commits with its checkpoint"):
        flow(saga)
    saga = new_saga()
    add_wait(saga).probe(_no_probe)
    with pytest.raises(DefinitionError, match="MP116 order v1, wait delivered: its probe is only asked with"):
        flow(saga)


async def _no_probe(ctx: Any) -> Probe[Any]:
    return Absent()
