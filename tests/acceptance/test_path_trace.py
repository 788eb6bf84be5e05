"""Scenario 54 for runs: one trace id from the web request to the last undo, received by a real OTLP endpoint."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from aiokafka import AIOKafkaConsumer
from milepost import publish
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import format_trace_id

from tests.support.apps.ledger import Delivered, ask, parcel
from tests.support.apps.ledger_stage import Stage, staged
from tests.support.otlp import Receiver, Span, receiving
from tests.support.process import served
from tests.support.waiting import until

#: The roles in three processes, so that the trace has to travel.
PROCESSES = ("relay,waker,upkeep", "orchestrator,signals,consumers", "worker,compensator")
CARRIER = "4bf92f3577b34da6a3ce929d0e0e4736"


@contextmanager
def request() -> Iterator[str]:
    """Be inside a web request that its framework traces; yields its trace id."""
    provider = TracerProvider(shutdown_on_exit=False)
    try:
        with provider.get_tracer("web").start_as_current_span("POST /parcels") as span:
            yield format_trace_id(span.get_span_context().trace_id)
    finally:
        provider.shutdown()


def spans_of(receiver: Receiver, run: UUID) -> list[Span]:
    """Return the spans that name a run, in order of their beginnings."""
    found = [span for span in list(receiver.spans) if span.attributes.get("milepost.run") == str(run)]
    return sorted(found, key=lambda span: span.start_ns)


async def shown(receiver: Receiver, run: UUID, *names: str) -> dict[str, Span]:
    """Wait until all of these spans of a run have arrived; returns them by name."""
    await until(
        lambda: set(names) <= {span.name for span in spans_of(receiver, run)},
        within=30,
        what=f"the spans {', '.join(names)}",
    )
    return {span.name: span for span in spans_of(receiver, run)}


async def traceparents(stage: Stage, topic: str, count: int) -> list[str]:
    """Read a topic from its beginning; returns the traceparents of its first records."""
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=stage.kafka, auto_offset_reset="earliest", group_id=None
    )
    await consumer.start()
    try:
        found: list[str] = []
        while len(found) < count:
            record = await consumer.getone()
            found.append(dict(record.headers).get("traceparent", b"").decode())
        return found
    finally:
        await consumer.stop()


async def test_a_request_that_publishes_and_starts_a_run_is_one_trace_to_its_end(
    database_url: str, kafka: str, topic_prefix: str
) -> None:
    async with staged(database_url, kafka, topic_prefix) as stage:
        topic = f"{topic_prefix}-deliveries"
        with receiving() as receiver:
            env = stage.env(LEDGER_WAIT=20, OTEL_EXPORTER_OTLP_ENDPOINT=receiver.endpoint)
            async with served(env, *PROCESSES):
                with request() as trace:
                    async with stage.pool.acquire() as connection, connection.transaction():
                        await publish(connection, Delivered(name="p"), topic=topic)
                    run = await stage.start(parcel, "p")
                assert await stage.resting([run], within=60) == {"SUCCEEDED": 1}
                spans = await shown(receiver, run, "step pay", "step send", "wait arrived", "step close")
                consumers = "process ledger.delivered"
                await until(
                    lambda: len(receiver.named(consumers)) == 2, within=30, what="both consumers' spans"
                )
        [published] = await traceparents(stage, topic, 1)
        assert published.split("-")[1] == trace
        assert {span.trace_id for span in spans.values()} == {trace}
        assert {span.trace_id for span in receiver.named(consumers)} == {trace}


async def test_probe_retries_wait_and_undo_stay_in_the_requests_trace(
    database_url: str, kafka: str, topic_prefix: str
) -> None:
    async with staged(database_url, kafka, topic_prefix) as stage:
        await stage.fault("doubted", "act", "after", "raise")
        await stage.fault("back", "pay", "before", "raise")
        with receiving() as receiver:
            env = stage.env(LEDGER_WAIT=3, OTEL_EXPORTER_OTLP_ENDPOINT=receiver.endpoint)
            async with served(env, *PROCESSES):
                with request() as trace:
                    doubted = await stage.start(ask, "doubted")
                    back = await stage.start(parcel, "back")
                    there = await stage.start(parcel, "there")
                await stage.step_is(there, "arrived", "WAITING")
                await stage.deliver("there", traceparent=f"00-{CARRIER}-00f067aa0ba902b7-01")
                ended = await stage.resting([doubted, back, there], within=60)
                assert ended == {"SUCCEEDED": 2, "COMPENSATED": 1}
                undone = await shown(
                    receiver, back, "step pay", "step send", "wait arrived", "undo call_back", "undo repay"
                )
                asked = await shown(receiver, doubted, "step ask_act", "probe ask_act", "step ask_next")
                waited = await shown(receiver, there, "wait arrived", "step close")
        assert len([span for span in spans_of(receiver, back) if span.name == "step pay"]) == 2, (
            "a span for each try"
        )
        for spans in (undone, asked, waited):
            assert {span.trace_id for span in spans.values()} == {trace}
        # The carrier's trace is another company's: the wait points to it, and does not move into it.
        assert waited["wait arrived"].links == (CARRIER,)
        wait = undone["wait arrived"]
        assert 2.5e9 < wait.end_ns - wait.start_ns < 30e9, "the span lasts as long as the wait did"
        internal = await traceparents(stage, f"{topic_prefix}.compensation.default", 2)
        assert {text.split("-")[1] for text in internal} == {trace}
