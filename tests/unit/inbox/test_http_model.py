"""The Idempotency-Key header as a string of RFC 9651, and what counts as the same request."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from milepost.inbox.http_model import Recorded, fingerprint_of, key_problem, read_key


@pytest.mark.parametrize(
    ("header", "key"),
    [
        (b'"8e03978e-40d5"', "8e03978e-40d5"),
        (b' "a b"  ', "a b"),
        (rb'"a\"b\\c"', 'a"b\\c'),
        (b'"a";x=1', "a"),
        (b'"a" ; x', "a"),
        (b'"' + b"x" * 255 + b'"', "x" * 255),
        (b'"' + b"x" * 256 + b'"', None),
        (b'""', None),
        (b"", None),
        (b"8e03978e", None),
        (b'"a', None),
        (b'a"', None),
        (b'"a"b', None),
        (b'"a", "b"', None),
        (rb'"a\b"', None),
        (b'"a\x00"', None),
        ('"ü"'.encode(), None),
        (b":YQ==:", None),
    ],
)
def test_reading_the_header(header: bytes, key: str | None) -> None:
    assert read_key([header]) == key
    if key is None:
        assert "RFC 9651" in key_problem([header])


def test_it_is_there_once() -> None:
    assert read_key([]) is None
    assert read_key([b'"a"', b'"a"']) is None
    assert "several" in key_problem([b'"a"', b'"a"']) and "needs" in key_problem([])


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=255))
def test_every_string_that_is_written_is_read(key: str) -> None:
    escaped = key.replace("\\", "\\\\").replace('"', '\\"')
    assert read_key([f'"{escaped}"'.encode()]) == key


@given(st.binary(max_size=300))
def test_no_bytes_make_it_raise(header: bytes) -> None:
    found = read_key([header])
    assert found is None or 0 < len(found) <= 255


def scope(**more: Any) -> dict[str, Any]:
    return {
        "method": "POST",
        "path": "/a",
        "raw_path": b"/a",
        "query_string": b"",
        "headers": [(b"content-type", b"application/json; charset=utf-8")],
        **more,
    }


def test_what_is_the_same_request() -> None:
    one = fingerprint_of(scope(), b'{"a": 1, "b": 2}')
    assert one == fingerprint_of(scope(), b'{"b":2,"a":1}')
    others = [
        fingerprint_of(scope(), b'{"a": 1.0, "b": 2}'),
        fingerprint_of(scope(method="PATCH"), b'{"a": 1, "b": 2}'),
        fingerprint_of(scope(raw_path=b"/b"), b'{"a": 1, "b": 2}'),
        fingerprint_of(scope(query_string=b"x=1"), b'{"a": 1, "b": 2}'),
        fingerprint_of(scope(headers=[]), b'{"a": 1, "b": 2}'),
        fingerprint_of(scope(headers=[]), b'{"b":2,"a":1}'),
        fingerprint_of(scope(), b"no JSON"),
    ]
    assert len({one, *others}) == 8


def test_headers_of_a_session_are_not_kept() -> None:
    headers = [
        (b"Set-Cookie", b"a=b"),
        (b"ETag", b'"1"'),
        (b"Location", b"/x"),
        (b"Vary", b"a"),
        (b"vary", b"b"),
    ]
    assert Recorded(201, headers, b"").kept_headers == {"etag": '"1"', "location": "/x", "vary": "a, b"}
