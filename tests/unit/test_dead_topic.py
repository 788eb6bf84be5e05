"""Copies of letters: what survives as text, what as base64, and what stays behind."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from milepost import Event, Milepost, Settings, Transaction
from milepost.consumers.dead_topic import copy_of, dead_topics, reporter
from milepost.inbox.model import Item, Reason
from milepost.outbox.model import OutboxRow
from milepost.schemas.packing import unpack_headers
from pydantic import PostgresDsn

from tests.support.inbox import IDS, record

REASON = Reason(
    "HANDLE", "HANDLER_FAILED", "a\x00b", True, 3, error="ValueError", trace="x" * 20_000 + "\ud800"
)


def copy(max_bytes: int = 1_000_000, reason: Reason = REASON, **changes: Any) -> OutboxRow:
    """Return the copy of a record with some changes."""
    found = replace(record(5), **changes)
    return copy_of(
        UUID(int=1),
        "s.dead",
        "books",
        (UUID(int=2), Item(found, IDS.new(), b""), reason),
        max_bytes=max_bytes,
    )


def service(**settings: Any) -> Milepost:
    made = Milepost("shop", settings=Settings(database_url=PostgresDsn("postgresql://x@y/z"), **settings))

    class Paid(Event, type="shop.paid", version=1, topic="paid"):
        order: str

    async def handle(event: Paid, tx: Transaction) -> None: ...

    for name in ("books", "mail"):
        made.consumer(name).on(Paid)(handle)
    return made


def test_texts_are_headers_of_their_own_and_a_letter_is_named() -> None:
    row = copy(key=b"o-1", headers=[("ce_id", b"1"), ("Größe", "ß".encode())])
    assert (row.topic, row.aggregateid, row.type) == ("s.dead", "o-1", "milepost.dead-letter")
    assert (row.headers["ce_id"], row.headers["Größe"]) == ("1", "ß")
    assert (
        "__milepost.errors.headers" not in row.headers and "__milepost.errors.key.encoding" not in row.headers
    )
    assert row.headers["__milepost.errors.letter"] == str(UUID(int=2))
    assert row.headers["__milepost.errors.attempts"] == "3"
    assert row.headers["__connect.errors.task.id"] == "0"


def test_nothing_that_postgresql_text_cannot_hold_is_in_a_header() -> None:
    row = copy(headers=[("nul\x00", b"a"), ("v", b"a\x00")], key=b"a\x00")
    assert not any(
        bad in text for text in [*row.headers, *row.headers.values()] for bad in ("\x00", "\ud800")
    )
    assert row.headers["__connect.errors.exception.message"] == "a\ufffdb"
    assert len(row.headers["__connect.errors.exception.stacktrace"]) == 8_000
    assert row.aggregateid == "YQA="


@pytest.mark.parametrize(
    "odd",
    [
        [("x", b"\xff")],
        [("x", None)],
        [("x", b"1"), ("x", b"2")],
        [("__connect.errors.topic", b"an older one")],
    ],
)
def test_headers_that_are_no_plain_texts_are_all_kept_in_one(odd: list[tuple[str, bytes | None]]) -> None:
    headers: list[tuple[str, bytes | None]] = [("plain", b"1"), *odd]
    row = copy(headers=headers)
    assert row.headers["plain"] == "1" and "x" not in row.headers
    assert unpack_headers(row.headers["__milepost.errors.headers"].encode()) == headers
    assert row.headers["__connect.errors.topic"] == "t"


@pytest.mark.parametrize(
    ("key", "value", "payload", "header"),
    [
        (b"k", None, None, None),
        (None, b"v", b"v", None),
        (None, None, b"", "value.null"),
        (b"k", b"v" * 2_000, None, "value.omitted"),
        (None, b"v" * 2_000, b"", "value.omitted"),
        (b"", b"", b"", None),
    ],
)
def test_what_kafka_cannot_take_is_left_out_and_said(
    key: bytes | None, value: bytes | None, payload: bytes | None, header: str | None
) -> None:
    row = copy(max_bytes=1_900, reason=replace(REASON, trace=""), key=key, value=value)
    assert (row.payload, row.aggregateid) == (payload, None if key is None else key.decode())
    said = {name.removeprefix("__milepost.errors.") for name in row.headers} & {"value.null", "value.omitted"}
    assert header is None or header in said
    assert header is not None or not said


@pytest.mark.parametrize(
    ("pattern", "topics"),
    [
        ({}, ["shop.dead"]),
        ({"dead_letter_topic": "{consumer}.dead"}, ["books.dead", "mail.dead"]),
        ({"dead_letter_topic": "lost"}, ["lost"]),
        ({"dead_letter_topic": ""}, []),
    ],
)
def test_the_topic_is_named_by_a_setting(pattern: dict[str, str], topics: list[str]) -> None:
    made = service(**pattern)
    assert dead_topics(made) == topics
    assert (reporter(made, "books") is None) == (not topics)
