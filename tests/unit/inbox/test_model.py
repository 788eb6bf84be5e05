"""What a batch calls for, without a database."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Literal
from uuid import uuid4

import pytest
from milepost.inbox import letter, model, pieces
from milepost.inbox.fingerprint import fingerprint
from milepost.inbox.model import Act, Item
from milepost.schemas.envelope import Record
from milepost.schemas.options import Retry
from milepost.schemas.texts import unstorable

from tests.support.inbox import IDS, Paid, headers, record

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
OLDEST = BEGAN.timestamp() * 1000


async def handler(event: Paid, tx: object) -> None: ...


def find(type: str) -> model.Bound | None:
    return (Paid, handler) if type == "test.paid" else None


def read(
    found: Record, *, unknown: Literal["skip", "dead_letter"] = "skip", oldest_ms: float = OLDEST
) -> Item:
    return model.read(found, find, unknown=unknown, oldest_ms=oldest_ms)


def raw(value: bytes | None, names: list[tuple[str, bytes | None]]) -> Record:
    return replace(record(0), value=value, headers=names)


def test_key_order_makes_no_difference_but_a_digit_does() -> None:
    one = fingerprint("a", b'{"x": 1.10, "y": {"b": 1, "a": [1, 2]}}')
    assert one == fingerprint("a", b'{"y":{"a":[1,2],"b":1},"x":1.10}')
    assert one != fingerprint("a", b'{"y":{"a":[2,1],"b":1},"x":1.10}')
    assert one != fingerprint("b", b'{"x": 1.10, "y": {"b": 1, "a": [1, 2]}}')


def test_numbers_that_a_float_would_make_equal_differ() -> None:
    a, b = b"[0.10000000000000000001]", b"[0.10000000000000000002]"
    assert fingerprint("t", a) != fingerprint("t", b)
    assert fingerprint("t", b"[" + b"9" * 5000 + b"]") != fingerprint("t", b"[" + b"9" * 4999 + b"8]")


def test_a_number_and_its_text_differ() -> None:
    assert fingerprint("t", b"[1]") != fingerprint("t", b'["1"]')


@pytest.mark.parametrize("data", [b"", b"{", b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_json_has_a_fingerprint_all_the_same(data: bytes) -> None:
    assert len(fingerprint("t", data)) == 32


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (raw(b"{}", []), "NO_TYPE"),
        (raw(None, headers(IDS.new())), "NO_VALUE"),
        (raw(b"", headers(IDS.new())), "INVALID_BODY"),
        (raw(b"{", headers(IDS.new())), "INVALID_BODY"),
        (raw(b'{"order": 7}', headers(IDS.new())), "INVALID_BODY"),
        (raw(b"{}", [("ce_type", b"\xc3\x28")]), "BAD_HEADER"),
        (raw(b"not json", [("content-type", b"application/cloudevents+json")]), "BAD_JSON"),
        (raw(b'{"order": "o"}', headers(IDS.new(), ce_tenant="a\x00b")), "BAD_HEADER"),
    ],
)
def test_poison_is_parked_with_a_reason(found: Record, code: str) -> None:
    item = read(found)
    assert item.act is Act.PARK
    assert item.reason is not None and item.reason.code == code


def test_a_validator_that_raises_anything_parks_only_its_event() -> None:
    class Odd(Paid, type="test.odd", topic="t"):
        def model_post_init(self, context: object) -> None:
            raise KeyError("odd")

    item = model.read(
        raw(b'{"order": "o"}', headers(IDS.new(), type="test.odd")),
        lambda type: (Odd, handler),
        unknown="skip",
        oldest_ms=OLDEST,
    )
    assert item.reason is not None and item.reason.code == "INVALID_BODY"


def test_unknown_types_are_passed_by_or_parked_as_the_consumer_says() -> None:
    other = raw(b"{}", headers(IDS.new(), type="test.other"))
    assert read(other).act is Act.PASS
    parked = read(other, unknown="dead_letter")
    assert parked.reason is not None and parked.reason.code == "UNKNOWN_TYPE"


def test_an_event_older_than_the_inbox_remembers_is_too_old() -> None:
    now = datetime(2026, 6, 1, tzinfo=UTC)
    edge = int(model.oldest_kept(now, timedelta(days=7)))
    assert edge == int((now - timedelta(days=7)).timestamp() * 1000)
    assert read(record(0, at_ms=edge), oldest_ms=edge).act is Act.HANDLE
    old = read(record(0, at_ms=edge - 1), oldest_ms=edge)
    assert old.reason is not None and old.reason.code == "TOO_OLD"


def test_records_without_an_id_never_merge() -> None:
    nameless = [("ce_type", b"test.paid"), ("ce_id", b"  ")]
    one = replace(record(1), headers=nameless)
    two = replace(record(2), headers=nameless)
    assert read(one).id != read(two).id
    assert read(one).id == read(one).id


def test_each_identity_is_a_candidate_once_and_in_one_order() -> None:
    a, b = IDS.new(), IDS.new()
    items = [read(record(n, event_id=event_id)) for n, event_id in enumerate([b, a, b])]
    assert [item.id for item in model.candidates(items)] == [a, b]


def test_plan_sorts_new_repeated_and_reused() -> None:
    a, b, c = IDS.new(), IDS.new(), IDS.new()
    items = [
        read(record(0, event_id=a)),
        read(record(1, event_id=b)),
        read(record(2, event_id=a, body={"order": "o-0"})),
        read(record(3, event_id=a, body={"order": "other"})),
        read(record(4, event_id=c)),
    ]
    found = model.plan(items, inserted={a: "7", c: "7"}, stored={b: items[1].fingerprint})
    assert [item.record.offset for item in found.handle] == [0, 4]
    assert [(item.record.offset, reason.code) for item, reason in found.park] == [(3, "EVENT_ID_REUSED")]
    assert found.duplicates == 2


def test_what_a_batch_has_finished_ends_before_the_one_that_failed() -> None:
    items = [read(record(n)) for n in range(3)]
    marks = {item.id: "7" for item in items}
    found = model.plan(items, inserted=marks, stored={})
    assert set(found.unfinished(found.handle[1])) == {items[1].id, items[2].id}
    assert found.unfinished(found.handle[0]) == marks


def test_a_row_that_vanished_is_no_duplicate() -> None:
    with pytest.raises(LookupError):
        model.plan([read(record(0))], inserted={}, stored={})


def test_only_the_failing_event_goes_alone() -> None:
    items = [read(record(n)) for n in range(4)]
    assert pieces.split(items, items[2]) == [(False, items[:2]), (True, items[2:3]), (False, items[3:])]
    assert pieces.split(items, items[0]) == [(True, items[:1]), (False, items[1:])]
    assert pieces.split(items, None) == [(True, items)]


def test_after_an_unclean_exit_one_by_one_up_to_what_was_begun() -> None:
    items = [read(record(n)) for n in range(5, 9)]
    assert pieces.suspected(items, 6) == [(True, items[:2]), (False, items[2:])]
    assert pieces.suspected(items, -1) == [(False, items)]
    assert pieces.suspected(items, 99) == [(True, items)]


def test_attempts_and_time_both_end_the_retries() -> None:
    began, retry = BEGAN, Retry(attempts=3, within=timedelta(minutes=1))
    assert pieces.may_retry(retry, 2, began, began)
    assert not pieces.may_retry(retry, 3, began, began)
    assert not pieces.may_retry(retry, 1, began, began + timedelta(minutes=1))
    assert pieces.may_retry(replace(retry, within=None), 2, began, began + timedelta(days=9))


def test_delays_grow_to_the_cap_and_no_further() -> None:
    retry = Retry(first=timedelta(seconds=1), factor=2, cap=timedelta(seconds=5))
    assert [pieces.delay(retry, n, 1.0) for n in (1, 2, 3, 4, 5000)] == [1, 2, 4, 5, 5]
    assert pieces.delay(retry, 3, 0.0) == 0


def test_a_record_has_one_letter_however_often_it_comes() -> None:
    one = record(1)
    assert letter.letter_id("consumer:a", one) == letter.letter_id("consumer:a", replace(one))
    assert letter.letter_id("consumer:a", one) != letter.letter_id("consumer:b", one)
    assert letter.letter_id("consumer:a", one) != letter.letter_id("consumer:a", replace(one, timestamp_ms=1))


@pytest.mark.parametrize("milliseconds", [-1, 10**18, -(10**18)])
def test_timestamps_beyond_the_calendar_are_none(milliseconds: int) -> None:
    assert letter.sent_at(record(0, at_ms=milliseconds)) is None


def test_messages_for_people_hold_nothing_that_text_cannot() -> None:
    cleaned = letter.for_people("a\x00b\ud800c" + "x" * 5000)
    assert not unstorable(cleaned)
    assert cleaned.startswith("a\ufffdb") and len(cleaned) == 2000


def test_ids_that_are_no_version_7_depend_on_the_source() -> None:
    shared = str(uuid4())
    one = raw(b'{"order": "o"}', headers(shared, ce_source="/a"))
    two = raw(b'{"order": "o"}', headers(shared, ce_source="/b"))
    assert read(one).id != read(two).id
