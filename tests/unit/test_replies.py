"""Replies as participants of any make write them: whatever the body is, there is a fact."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from milepost.consumers.replies import read_reply
from milepost.schemas.envelope import Envelope
from milepost.schemas.exchange import Exchange

from tests.support.sagas import add_step, flow, new_run, new_saga

RUN = UUID("01970000-0000-7000-8000-000000000001")


def reply(outcome: str) -> Envelope:
    """Return the envelope of a reply."""
    return Envelope(
        id=RUN,
        event_id="e-1",
        topic="replies",
        partition=0,
        offset=0,
        key=None,
        traceparent=None,
        tracestate=None,
        type="truck.booked",
        version=1,
        source="trucks",
        tenant="",
        correlation_id=None,
        causation_id=None,
        time=None,
        exchange=Exchange(run=str(RUN), step="truck", direction="do", outcome=outcome),
    )


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff",
        b"[" * 100_000,
        b'{"truck": ' + b"[" * 5_000 + b"]" * 5_000 + b"}",
        b'{"truck": "\\u0000"}',
        b'{"\\u0000": 1}',
        b'{"truck": "\\ud800"}',
        b'{"truck": NaN}',
        b'{"truck": 1e999}',
    ],
)
@pytest.mark.parametrize("outcome", ["done", "refused"])
def test_a_body_that_no_row_can_hold_is_no_reply_of_its_class(body: bytes, outcome: str) -> None:
    fact = read_reply(reply(outcome), body).fact
    assert fact.payload is None
    assert fact.message == ""


def test_a_body_that_a_row_can_hold_is_kept() -> None:
    assert read_reply(reply("done"), b'{"truck": "\\\\u0000"}').fact.payload == {"truck": "\\u0000"}


def test_a_reply_says_of_what_type_it_is() -> None:
    assert read_reply(reply("done"), b"{}").fact.type == "truck.booked"
    assert read_reply(reply("refused"), b"{}").fact.type == "", "a refusal has a type of its own"


@pytest.mark.parametrize(("said", "counts"), [("", True), ("acme", True), ("other", False)])
def test_a_reply_that_names_another_tenant_is_none(said: str, counts: bool) -> None:
    saga = new_saga()
    add_step(saga, "truck")
    run = replace(new_run(flow(saga)), tenant="acme")
    found = read_reply(replace(reply("done"), tenant=said), b"{}").of(run)
    assert (found is not None) is counts
