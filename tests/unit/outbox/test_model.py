"""What an outbox row carries, and the locks of its key."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st
from milepost.outbox.model import OutboxRow, columns, event_row, lock_numbers, message_row
from milepost.schemas.envelope import Record, read_event
from milepost.schemas.events import Event
from milepost.schemas.ids import ManualClock, SystemIds
from milepost.schemas.messages import WorkMessage


class Placed(Event, type="shop.order.placed", version=3, topic="orders", key="order_id"):
    order_id: str


TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def row(topic: str, key: str | None) -> OutboxRow:
    return OutboxRow(UUID(int=1), "", topic, topic, key, "t", b"", {})


def test_an_event_reads_back_as_it_was_written() -> None:
    clock = ManualClock()
    made = event_row(
        Placed(order_id="o-1"),
        ids=SystemIds(),
        clock=clock,
        tenant="acme",
        correlation_id="c-1",
        causation_id="e-0",
        traceparent=TRACE,
        headers={"shop": "x"},
    )
    record = Record(
        made.topic,
        0,
        0,
        b"o-1",
        made.payload,
        [(name, text.encode()) for name, text in made.headers.items()],
        0,
    )
    envelope, body = read_event(record)
    assert (envelope.id, envelope.source, envelope.type) == (made.id, "shop.order", "shop.order.placed")
    assert (envelope.version, envelope.tenant, envelope.time) == (3, "acme", clock.now())
    assert (envelope.correlation_id, envelope.causation_id, envelope.traceparent) == ("c-1", "e-0", TRACE)
    assert Placed.model_validate_json(body) == Placed(order_id="o-1")
    assert (made.topic, made.aggregateid, made.headers["shop"]) == ("orders", "o-1", "x")


def test_topic_and_key_of_the_call_win() -> None:
    made = event_row(Placed(order_id="o-1"), ids=SystemIds(), clock=ManualClock(), topic="other", key="k")
    assert (made.topic, made.aggregateid) == ("other", "k")


def test_a_message_names_its_service() -> None:
    run = UUID(int=5)
    made = message_row(
        WorkMessage(run=run, saga="order", definition=1, step="ship"),
        topic="shop.work.default",
        key=str(run),
        ids=SystemIds(),
        clock=ManualClock(),
        tenant="",
        service="shop",
        correlation_id="c",
        traceparent=None,
    )
    assert (made.headers["ce_source"], made.type, made.aggregateid) == ("shop", "milepost.work", str(run))
    assert WorkMessage.model_validate_json(made.payload or b"").step == "ship"


keys = st.lists(st.tuples(st.text(max_size=3), st.none() | st.text(max_size=3)), max_size=8)


@given(keys)
def test_locks_are_sorted_and_one_per_key(pairs: list[tuple[str, str | None]]) -> None:
    found = lock_numbers(row(*pair) for pair in pairs)
    assert found == sorted(found) == lock_numbers(row(*pair) for pair in reversed(pairs))
    assert len(found) == len({pair for pair in pairs if pair[1] is not None})
    assert all(-(2**63) <= number < 2**63 for number in found)


def test_topic_and_key_do_not_run_together() -> None:
    assert lock_numbers([row("ab", "c")]) != lock_numbers([row("a", "bc")])


def test_columns_keep_the_order() -> None:
    made = columns([row("a", "1"), row("b", None)])
    assert made[2] == ["a", "b"] and made[4] == ["1", None] and made[7] == ["{}", "{}"]
