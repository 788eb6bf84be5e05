"""Trace contexts: strict when read, made and handed on even where nothing is exported."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from milepost.streams.tracing import current_traceparent, past_span, span, traceparent_of, valid_traceparent
from opentelemetry.trace import INVALID_SPAN

GOOD = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.mark.parametrize("text", [GOOD, GOOD[:-2] + "00", "cc-" + GOOD[3:], "cc-" + GOOD[3:] + "-more"])
def test_valid(text: str) -> None:
    assert valid_traceparent(text)


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "x",
        GOOD.upper(),
        f"{GOOD},{GOOD}",
        f" {GOOD}",
        f"{GOOD}\n",
        GOOD + "-more",
        "ff-" + GOOD[3:],
        "00-" + "0" * 32 + GOOD[35:],
        GOOD[:36] + "0" * 16 + "-01",
        GOOD[:-3],
        "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
    ],
)
def test_malformed_ones_are_dropped(text: str | None) -> None:
    assert not valid_traceparent(text)


def test_the_trace_of_a_parent_goes_on() -> None:
    with span("process x", traceparent=GOOD, kind="consumer"):
        inside = current_traceparent()
        assert inside is not None and inside.split("-")[1] == GOOD.split("-")[1]
        with span("inner"):
            deeper = current_traceparent()
            assert deeper is not None and deeper.split("-")[1] == GOOD.split("-")[1]
    assert current_traceparent() is None


@pytest.mark.parametrize("parent", ["", "nonsense", GOOD.upper()])
def test_without_a_usable_parent_a_new_trace_begins(parent: str) -> None:
    traces = set()
    with span("outer", traceparent=GOOD):
        for _ in range(2):
            with span("process x", traceparent=parent):
                found = current_traceparent()
                assert valid_traceparent(found) and found is not None
                traces.add(found.split("-")[1])
    assert len(traces) == 2 and GOOD.split("-")[1] not in traces


def test_an_unsampled_parent_stays_unsampled() -> None:
    with span("x", traceparent=GOOD[:-2] + "00") as opened:
        assert (traceparent_of(opened) or "").endswith("-00")


def test_errors_pass_through() -> None:
    with pytest.raises(KeyError), span("x", traceparent=GOOD):
        raise KeyError("x")
    assert current_traceparent() is None


def test_no_context_no_text() -> None:
    assert traceparent_of(INVALID_SPAN) is None


def test_a_past_span_without_an_exporter_is_nothing() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    past_span("wait", start=at, end=at, traceparent="nonsense", links=["nonsense"])
