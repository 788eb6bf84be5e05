"""What an edit makes of a record, and what it refuses."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from milepost.inbox.edit_model import EDITED_FROM, Edit, Edited, edited
from milepost.schemas.envelope import Record, read_event
from milepost.schemas.errors import MilepostError, StateError, UsageError

from tests.support.inbox import headers

OLD, NEW = UUID(int=1), UUID("0197c0de-0000-7000-8000-000000000001")


def record(value: bytes | None = b'{"order": "o-1", "n": 1}', **more: Any) -> Record:
    given: dict[str, Any] = {"key": b"k", "headers": headers(OLD), **more}
    return Record("t", 0, 7, given["key"], value, given["headers"], 1)


def edit(old: Record, change: Edit, *, code: str = "HANDLER_FAILED", most: int = 10_000) -> Edited:
    return edited(old, change, n=9, code=code, event_id=NEW, original=OLD, max_bytes=most)


def test_what_differs_is_changed_and_named_and_never_quoted() -> None:
    change = Edit(
        value=b'{"order": "secret", "n": 1}',
        key=b"k2",
        headers={"CE_Time": None, "x": "y", "ce_tenant": "acme"},
    )
    found = edit(record(), change)
    texts = {name: (value or b"").decode() for name, value in found.record.headers}
    assert (texts["ce_id"], texts[EDITED_FROM], texts["x"], "ce_time" in texts) == (
        str(NEW),
        str(OLD),
        "y",
        False,
    )
    assert (found.envelope.id, found.envelope.tenant, found.record.key) == (NEW, "acme", b"k2")
    assert (found.record.offset, found.record.topic) == (7, "t")
    assert found.changes["fields"] == ["order"]
    assert found.changes["headers"] == ["ce_tenant", "ce_time", "x"]
    assert "secret" not in json.dumps(found.changes)


def test_an_edit_of_an_edit_names_the_latest() -> None:
    once = edit(record(), Edit(key=b"a")).record
    twice = edited(
        once, Edit(key=b"b"), n=9, code="EDITED", event_id=UUID(int=3), original=NEW, max_bytes=9_999
    )
    assert [value for name, value in twice.record.headers if name == EDITED_FROM] == [str(NEW).encode()]


def test_a_structured_event_is_mended_and_goes_on_in_binary_mode() -> None:
    old = record(
        b"{not json", headers=[("Content-Type", b"application/cloudevents+json; charset=utf-8"), ("x", b"y")]
    )
    whole = b'{"specversion":"1.0","id":"a","source":"s","type":"t.x","tenant":"acme","data":{"amount":1.10}}'
    found = edit(old, Edit(value=whole), code="BAD_JSON")
    envelope, data = read_event(found.record)
    assert (envelope.type, envelope.tenant, envelope.source, data) == ("t.x", "acme", "s", b'{"amount":1.10}')
    assert (envelope.id, dict(found.record.headers)["x"]) == (NEW, b"y")
    with pytest.raises(UsageError, match=r"MP770 .*BAD_JSON"):
        edit(old, Edit(value=b"{still none"), code="BAD_JSON")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (Edit(value=b"{"), "MP770"),
        (Edit(value=b'{"a": "\\u0000"}'), "MP770"),
        (Edit(value=b'{"\\ud800": 1}'), "MP770"),
        (Edit(value=b'{"a": "\x00"}'), "MP770"),
        (Edit(value=b"[" * 100_000), "MP771"),
        (Edit(value=b"[" * 9_000), "MP770"),
        (Edit(headers={"x": "a\x00"}), "MP770"),
        (Edit(headers={"x\n": "a"}), "MP770"),
        (Edit(headers={" ": "a"}), "MP770"),
        (Edit(headers={"CE_ID": "mine"}), "MP770"),
        (Edit(headers={"milepost-codec": "x"}), "MP770"),
        (Edit(headers={"ce_type": None}), "MP770"),
        (Edit(headers={f"x{n}": "" for n in range(201)}), "MP770"),
        (Edit(), "MP772"),
        (Edit(value=b'{"order": "o-1", "n": 1}', key=b"k"), "MP772"),
    ],
)
def test_what_can_be_no_event_is_refused(change: Edit, code: str) -> None:
    with pytest.raises(UsageError) as raised:
        edit(record(), change)
    assert raised.value.code == code


@pytest.mark.parametrize("code", ["TOO_OLD", "EVENT_ID_REUSED", "INBOX_ROW_GONE"])
def test_where_the_id_is_what_is_wrong_another_one_is_enough(code: str) -> None:
    assert edit(record(), Edit(), code=code).envelope.id == NEW


def test_what_a_codec_wrote_is_left_alone() -> None:
    with pytest.raises(StateError, match="MP773"):
        edit(record(headers=[*headers(OLD), ("Milepost-Codec", b"aes")]), Edit(value=b"{}"))


@given(
    st.one_of(st.none(), st.binary(max_size=80)),
    st.one_of(st.none(), st.binary(max_size=80)),
    st.dictionaries(st.text(max_size=12), st.one_of(st.none(), st.text(max_size=20)), max_size=4),
    st.lists(st.tuples(st.text(max_size=12), st.one_of(st.none(), st.binary(max_size=20))), max_size=5),
)
def test_every_edit_is_an_event_under_the_new_id_or_a_named_refusal(
    value: bytes | None,
    old_value: bytes | None,
    changed: dict[str, str | None],
    old_headers: list[tuple[str, bytes | None]],
) -> None:
    old = record(old_value, headers=[*headers(OLD), *old_headers])
    try:
        found = edit(old, Edit(value=value, headers=changed))
    except MilepostError as error:
        assert error.code in {"MP770", "MP771", "MP772", "MP773"}
        return
    assert read_event(found.record)[0].id == NEW
    assert json.dumps(found.changes)
