"""A replay can be watched: in traces, where what it repeats points to it, and on a terminal, as a bar."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator

import pytest
from milepost.console.output import Output
from milepost.console.replay import Bar
from milepost.inbox.replay import ReplayOutcome
from milepost.streams.topics import ensure_topics
from milepost.streams.tracing import setup_tracing

from tests.support.inbox import IDS, Sent, headers
from tests.support.otlp import Receiver, receiving
from tests.support.replays import shop
from tests.support.waiting import until

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    with receiving() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        flush = setup_tracing("replay-test")
        yield receiver
        flush()


async def test_what_is_replayed_stays_in_its_trace_and_points_to_the_replay(
    database_url: str, kafka: str, topic_prefix: str, receiver: Receiver
) -> None:
    topic = f"{topic_prefix}.orders"
    await ensure_topics(kafka, [topic], partitions=1)
    sent = Sent(b'{"order": "o-1"}', headers(IDS.new(), traceparent=f"00-{TRACE}-00f067aa0ba902b7-01"))
    async with shop(database_url, kafka, topic) as live:
        await live.consume([sent], until_effects=1)
        await live.lose("o-1")
        report = await live.service.replay(topic, topic=topic, since={0: 0}, apply=True)
    assert report.counts == {ReplayOutcome.REPLAYED: 1}
    await until(lambda: len(receiver.named("process test.paid")) == 2 and receiver.named("replay"), within=30)
    first, again = sorted(receiver.named("process test.paid"), key=lambda span: span.start_ns)
    (replay,) = receiver.named("replay")
    assert replay.attributes["milepost.replay"] == str(report.id)
    assert {first.trace_id, again.trace_id} == {TRACE} and replay.trace_id != TRACE
    assert (first.links, again.links) == ((), (replay.trace_id,))


class Terminal(io.StringIO):
    """Something that says it is one."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("terminal", "as_json"), [(True, False), (False, False), (True, True)])
def test_a_terminal_gets_a_bar_and_everything_else_one_line(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, as_json: bool
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    shown = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", shown)
    replay = IDS.new()
    with Bar(Output(as_json=as_json)) as bar:
        for done in (0, 450, 900):
            bar.tell(replay, done, 900, {ReplayOutcome.MISSING.value: 3} if done else {})
    text = shown.getvalue()
    assert ("900/900" in text, "3 missing" in text) == (terminal and not as_json,) * 2
    assert text.count(f"replay {replay}") == (0 if as_json else 1)
    assert not terminal or as_json or "━" in text
