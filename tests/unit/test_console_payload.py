"""Bytes that anybody may have sent, as pages show them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from milepost.console.views import payload
from milepost.console.views.letter_rows import spoken
from milepost.console.views.unknown import what_next
from milepost.schemas.states import StepState

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_are_shown_and_nothing_in_them_is_obeyed(data: bytes, readable: bool) -> None:
    found = payload.shown(data, readable=readable)
    assert found.bytes == len(data)
    assert found.kind != "hidden" or found.text == ""
    assert not [one for one in found.text if (one < " " and one not in "\n\t") or "\x7f" <= one <= "\x9f"]
    assert not set(found.text) & payload._DIRECTIONS


LEAVES = st.none() | st.booleans() | st.integers() | st.text()
VALUES = st.recursive(
    LEAVES, lambda one: st.lists(one, max_size=4) | st.dictionaries(st.text(), one, max_size=4), max_leaves=20
)


@given(VALUES)
def test_json_reads_the_same_with_its_line_breaks(value: object) -> None:
    written = payload._pretty(json.dumps(value).encode())
    assert written is None or json.loads(written) == value


def test_digits_are_shown_as_they_were_sent_and_a_member_that_is_there_twice_too() -> None:
    data = b'{"amount": 1.10, "big": 12345678901234567890123, "e": 1E+2, "amount": 2}'
    text = payload.shown(data, readable=True).text
    assert '"amount": 1.10' in text and "12345678901234567890123" in text and "1E+2" in text
    assert text.count('"amount"') == 2


@pytest.mark.parametrize(
    ("data", "kind", "part"),
    [
        (b"plain", "text", "plain"),
        (b"\x00\x01\x02<script>", "hex", "00000000  00 01 02 3c"),
        (b"\xff\xfe", "hex", "ff fe"),
        ("a\u202eb".encode(), "text", "a\\u202eb"),
        (b"[" * 100_000, "text", "["),
        (b"", "text", ""),
        (b"{broken", "text", "{broken"),
    ],
)
def test_what_is_no_json_is_shown_as_text_or_as_bytes(data: bytes, kind: str, part: str) -> None:
    found = payload.shown(data, readable=True)
    assert (found.kind, part in found.text) == (kind, True)


def test_only_the_beginning_of_much_is_shown_and_says_so() -> None:
    found = payload.shown(("ä" * 70_000).encode(), readable=True)
    assert (found.kind, found.cut, found.bytes) == ("text", True, 140_000)
    assert payload.shown(None, readable=False).kind == "none"


@pytest.mark.parametrize(
    ("message", "code", "stage", "told"),
    [
        ("ValueError: card 4242 is bad", "HANDLER_FAILED", "HANDLE", "ValueError: …"),
        ("shop.errors.Bad: x", "HTTP_422", "HANDLE", "shop.errors.Bad: …"),
        ("it is no Paid: input_value='4242'", "INVALID_BODY", "DECODE", "…"),
        ("no handler takes the type x", "UNKNOWN_TYPE", "DECODE", "no handler takes the type x"),
        ("the record is 9 bytes", "TOO_LARGE", "RELAY", "the record is 9 bytes"),
    ],
)
def test_words_that_may_quote_an_event_are_kept_from_who_may_not_see_it(
    message: str, code: str, stage: str, told: str
) -> None:
    assert spoken(message, code, stage, readable=False) == told
    assert spoken(message, code, stage, readable=True) == message


@pytest.mark.parametrize(
    ("state", "wake", "lease", "words"),
    [
        (StepState.UNKNOWN, 10, None, "the probe is asked again"),
        (
            StepState.UNKNOWN,
            99,
            None,
            "the probe is asked for the last time; without an answer a person is called",
        ),
        (StepState.UNKNOWN, -1, None, "the probe is asked as soon as a worker of queue slow is free"),
        (StepState.RECONCILING, 5, 5, "worker w is asking the probe now; without an answer another one asks"),
        (StepState.RECONCILING, 5, -5, "worker w was asking the probe and is gone; another one asks anew"),
        (StepState.MANUAL_REQUIRED, 5, None, "asking has ended: a person says what happened"),
    ],
)
def test_what_happens_next_of_a_step_in_doubt(
    state: StepState, wake: int, lease: int | None, words: str
) -> None:
    found, at = what_next(
        state,
        wake_at=NOW + timedelta(seconds=wake),
        worker="w",
        lease_until=None if lease is None else NOW + timedelta(seconds=lease),
        queue="slow",
        ends=NOW + timedelta(seconds=60),
        now=NOW,
    )
    assert (found, at is None) == (words, state is StepState.MANUAL_REQUIRED)
