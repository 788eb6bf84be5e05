"""A redrive is seen in traces: the handler's second span stays in the event's trace and links to the redrive."""

from __future__ import annotations

from dataclasses import replace

import pytest
from milepost.streams.tracing import setup_tracing

from tests.support.inbox import IDS, Effects, consumer_of, headers, intake_of, opened, record
from tests.support.letters import ONCE, Broken, drained, redrive, redriver_of
from tests.support.otlp import receiving
from tests.support.waiting import until

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


async def test_what_is_redriven_points_to_the_redrive(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = replace(record(0), headers=headers(IDS.new(), traceparent=f"00-{TRACE}-00f067aa0ba902b7-01"))
    with receiving() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        flush = setup_tracing("redrive-test")
        async with opened(database_url) as database:
            broken = Broken(Effects(database.pool), {"o-0"})
            consumer = consumer_of("c", "t", broken.apply, retry=ONCE)
            await intake_of(consumer, database).handle([event])
            broken.orders = set()
            await redrive(database, 1)
            await drained(redriver_of(consumer, database))
            assert await broken.effects.orders() == ["o-0"]
            letter = await broken.effects.value("SELECT id::text FROM milepost.dead_letter")
        await until(lambda: receiver.named("redrive"), within=30, what="the span")
        flush()
        tries = sorted(receiver.named("process test.paid"), key=lambda span: span.start_ns)
        (redriven,) = receiver.named("redrive")
    assert {span.trace_id for span in tries} == {TRACE} and len(tries) >= 2
    assert [span.links for span in tries[:-1]] == [()] * (len(tries) - 1)
    assert tries[-1].links == (redriven.trace_id,) and not tries[-1].failed
    assert redriven.attributes["milepost.letter"] == letter
