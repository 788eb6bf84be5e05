"""What a newcomer gets wrong in a call: refused at once, with a code and what to write instead."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

import pytest
from milepost import Context, DefinitionError, Event, Milepost, Repeat, Saga, Settings, StartError
from milepost.consumers.classify import classify
from pydantic import BaseModel


class Order(BaseModel):
    id: str


def saga() -> Any:
    """A saga, without types: the mistakes here are those that a type checker would catch."""
    return cast(Any, Saga("order", version=1, input=Order, key=lambda order: order.id))


def test_a_step_without_context() -> None:
    async def reserve() -> None: ...

    with pytest.raises(DefinitionError, match=r"MP117 order v1, step reserve: it is called with \(ctx\)"):
        saga().step(repeat=Repeat.SAFE)(reserve)


def test_a_transactional_step_without_transaction() -> None:
    async def close(ctx: Context[Order]) -> None: ...

    with pytest.raises(DefinitionError, match=r"MP117 order v1, step close: it is called with \(ctx, tx\)"):
        saga().tx_step()(close)


def test_an_undo_without_the_result() -> None:
    made = saga()

    @made.step(repeat=Repeat.SAFE)  # type: ignore[untyped-decorator]
    async def reserve(ctx: Context[Order]) -> None: ...

    async def release(ctx: Context[Order]) -> None: ...

    with pytest.raises(
        DefinitionError, match=r"MP117 order v1, undo of reserve: .*async def release\(ctx, done\)"
    ):
        reserve.undo(release)


@pytest.mark.parametrize("option", ["key", "lock"])
def test_a_text_in_place_of_a_function_of_the_input(option: str) -> None:
    options: dict[str, Any] = {"key": lambda order: order.id, option: "id"}
    with pytest.raises(
        DefinitionError, match=rf"MP113 order v1: {option}='id' must be .* {option}=lambda order:"
    ):
        Saga("order", version=1, input=Order, **options)


def test_a_text_in_place_of_a_function_of_the_view() -> None:
    def refused(node: str, option: str) -> Any:
        return pytest.raises(
            DefinitionError, match=rf"MP113 order v1, {node} x: {option}=.*{option}=lambda view:"
        )

    with refused("wait", "match"):
        saga().wait("x", Event, match="id", timeout=timedelta(hours=1), on_timeout=None)
    with refused("timer", "due"):
        saga().timer("x", "1h")
    with refused("command", "send"):
        saga().command("x", "BookTruck", reply=Event, timeout=timedelta(hours=1), repeat=Repeat.SAFE)
    with refused("child", "input"):
        saga().child("x", saga(), input={"id": "1"})


@pytest.mark.parametrize("decorator", ["step", "tx_step"])
def test_a_decorator_without_its_brackets(decorator: str) -> None:
    async def reserve(ctx: Context[Order]) -> None: ...

    with pytest.raises(
        DefinitionError,
        match=rf"MP117 order v1: @order.{decorator} above reserve .* Write @saga\.{decorator}\(",
    ):
        getattr(saga(), decorator)(reserve)


def test_an_event_of_a_type_that_is_ours() -> None:
    with pytest.raises(
        DefinitionError, match=r"MP106 event Mine: type='milepost.timer' begins with milepost\."
    ):

        class Mine(Event, type="milepost.timer", topic="mine"):
            id: str


def test_repeat_as_text() -> None:
    async def reserve(ctx: Context[Order]) -> None: ...

    with pytest.raises(
        DefinitionError, match=r"MP118 order v1, step reserve: repeat='safe' is none of Repeat.SAFE"
    ):
        saga().step(repeat="safe")(reserve)


def test_a_ready_client_in_place_of_a_factory() -> None:
    service = cast(Any, Milepost("shop"))
    with pytest.raises(DefinitionError, match=r"MP125 provide\(dict\): \{\} is no factory"):
        service.provide(dict, {})


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30), ("5m", 300), ("250ms", 0.25), ("PT30S", 30), ("1.5h", 5400)]
)
def test_durations(monkeypatch: pytest.MonkeyPatch, text: str, seconds: float) -> None:
    monkeypatch.setenv("MILEPOST_DATABASE_URL", "postgresql://localhost/x")
    monkeypatch.setenv("MILEPOST_GRACE", text)
    assert Settings.from_env().grace == timedelta(seconds=seconds)


def test_a_duration_without_unit_says_how_to_write_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILEPOST_DATABASE_URL", "postgresql://localhost/x")
    monkeypatch.setenv("MILEPOST_LEASE", "5")
    with pytest.raises(
        StartError, match=r"MP203 settings: MILEPOST_LEASE: .*'5' is no duration; write \"30s\""
    ):
        Settings.from_env()


@pytest.mark.parametrize("text", ["1ms", "499ms"])
def test_a_lease_that_cannot_be_renewed_in_time(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("MILEPOST_DATABASE_URL", "postgresql://localhost/x")
    monkeypatch.setenv("MILEPOST_LEASE", text)
    with pytest.raises(StartError, match="MP203 settings: MILEPOST_LEASE: a lease has to be 500ms or longer"):
        Settings.from_env()


def test_an_unlisted_exception_says_where_it_was_raised() -> None:
    try:
        dict[str, str]().popitem()
    except KeyError as error:
        found = classify(error, {})
    assert found.verdict == "unknown"
    assert found.code == "KEYERROR"
    assert "test_mistakes_in_calls.py" in found.message
