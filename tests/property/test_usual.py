"""What is read the fast way is what is read the slow way, whatever the bytes of a record are."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from milepost.inbox import model
from milepost.inbox.fingerprint import fingerprint
from milepost.schemas import usual
from milepost.schemas.codecs import CodecContext, Unreadable
from milepost.schemas.envelope import Envelope, NotAnEvent, Record, read_event
from milepost.schemas.ids import SystemIds, event_identity, uuid7_at
from milepost.schemas.reading import read_body, read_body_of

from tests.support.inbox import Paid, headers

Header = tuple[str, bytes | None]

IDS = SystemIds()
USUAL = headers(
    IDS.new(),
    ce_tenant="t",
    ce_correlationid="c",
    ce_causationid=str(IDS.new()),
    traceparent=f"00-{'a' * 32}-{'b' * 16}-01",
    tracestate="x=1",
)
ODD_NAMES = (
    "CE_ID",
    "Content-Type",
    "ce_subject",
    "x-other",
    "milepost-run",
    "milepost-headers",
    "milepost-codec",
)
NAMES = st.sampled_from([*(name for name, _ in USUAL), *ODD_NAMES])
VALUES = (
    st.none()
    | st.binary(max_size=12)
    | st.text(max_size=12).map(str.encode)
    | st.sampled_from(
        [
            b"",
            b" ",
            b"\x1f\t",
            b"a\x00b",
            "ü".encode(),
            b"\xed\xa0\x80",
            b"0",
            b"2",
            b"9" * 30,
            b"i" * 1025,
            b"2026-01-01t00:00:00z",
            b"2026-01-01T00:00:00",
            b"Application/JSON; charset=utf-8",
            b"application/cloudevents+json",
            b"application/cloudevents+xml",
            b"text/xml",
            b'{"ce_tenant": "other"}',
            str(IDS.new()).upper().encode(),
            b"6a0d3c2e-4b6f-5a0e-9a53-0f6f6d1f7c11",
        ]
    )
)


@st.composite
def somewhat_odd(draw: st.DrawFn) -> list[Header]:
    """Usual headers, some of them left out, changed, repeated or out of order."""
    found: list[Header] = [pair for pair in USUAL if draw(st.integers(0, 9))]
    for name, value in draw(st.lists(st.tuples(NAMES, VALUES), max_size=2)):
        at = draw(st.integers(0, len(found)))
        if draw(st.booleans()):
            found = [(known, value if known == name else old) for known, old in found]
        else:
            found.insert(at, (name, value))
    return draw(st.permutations(found)) if draw(st.booleans()) else found


def outcome(read: Any, record: Record) -> Any:
    """What reading comes to."""
    try:
        return read(record)
    except NotAnEvent as error:
        return error.code, str(error)


@settings(max_examples=1500, deadline=None)
@given(somewhat_odd(), st.none() | st.just(b"{}") | st.binary(max_size=4))
def test_an_envelope_read_fast_is_the_one_read_slowly(found: list[Header], value: bytes | None) -> None:
    record = Record("t", 1, 7, b"k", value, tuple(found), 5)
    slow = outcome(read_event, record)
    for _ in range(2):  # the second time what the headers have in common is known
        fast = outcome(usual.read_usual, record)
        assert fast == slow
        if isinstance(fast[0], Envelope):
            assert (
                type(fast[0]) is Envelope
                and repr(fast[0]) == repr(slow[0])
                and hash(fast[0].id) == hash(slow[0].id)
            )


def test_usual_headers_are_read_fast() -> None:
    assert usual._usual(Record("t", 0, 0, None, b"{}", tuple(USUAL), 0)) is not None
    assert usual._usual(Record("t", 0, 0, None, b"{}", tuple(headers("o-1")), 0)) is not None


def test_what_is_kept_of_headers_is_bounded() -> None:
    for n in range(usual._KEPT + 5):
        usual.read_usual(Record("t", 0, n, None, b"{}", headers("1", ce_tenant=str(n), **{f"x{n}": ""}), 0))
    before = len(usual._kinds), len(usual._layouts)
    assert max(before) <= usual._KEPT
    usual.read_usual(
        Record("t", 0, 0, None, b"{}", headers("1", ce_tenant="t" * 3000, **{"x" * 3000: ""}), 0)
    )
    assert (len(usual._kinds), len(usual._layouts)) == before


@given(st.integers(0, 2**48 - 1), st.integers(0, 2**74 - 1))
def test_an_identity_made_fast_is_like_any_uuid(milliseconds: int, tail: int) -> None:
    given_id = uuid7_at(milliseconds, tail)
    made = event_identity("", "", str(given_id))
    assert (made, hash(made), repr(made), made.is_safe) == (
        given_id,
        hash(given_id),
        repr(given_id),
        given_id.is_safe,
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
WRITTEN = st.builds(
    lambda value, indent, ascii: json.dumps(value, indent=indent, ensure_ascii=ascii).encode(
        errors="surrogatepass"
    ),
    JSON,
    st.none() | st.just(1),
    st.booleans(),
)
PLAIN = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(max_codepoint=0x80), max_size=5)
)
FLAT = st.dictionaries(st.text(max_size=3) | st.sampled_from("abc"), PLAIN, max_size=30).map(
    lambda body: json.dumps(body, ensure_ascii=False).encode(errors="surrogatepass")
)
AROUND = st.sampled_from([b"", b" ", b"\n\t", b"x", b"\xef\xbb\xbf", b",", b"\x00"])


def as_first_released(type: str, data: bytes) -> bytes:
    """The fingerprint as rows of the first release hold it."""

    def written(number: str) -> list[str]:
        return ["#", number]

    try:
        found = json.loads(data.decode(), parse_float=written, parse_int=written, parse_constant=written)
        canonical = json.dumps(found, sort_keys=True, separators=(",", ":")).encode()
    except (ValueError, RecursionError):
        canonical = data
    return hashlib.sha256(type.encode(errors="surrogatepass") + b"\n" + canonical).digest()


@settings(max_examples=500, deadline=None)
@example(b"1e5", b"", b"")
@example(b"[" * 100_000, b"", b"")
@example(b'{"a": NaN, "a": -0}', b"", b"")
@example(b'{"b": ["#", "1"], "a": [], "A": true, "": null, "c": "\x7f"}', b"", b"")
@example(b'{"b": ["#", "1\\n"], "a": {}}', b"", b"")
@example(b'{"b": ["#", 1], "a": "\t"}', b"", b"")
@given(WRITTEN | FLAT | st.binary(max_size=20), AROUND, AROUND)
def test_a_fingerprint_stays_what_it_was(body: bytes, before: bytes, behind: bytes) -> None:
    data = before + body + behind
    assert fingerprint("test.paid", data) == as_first_released("test.paid", data)


BODIES = (
    b'{"order": "o", "amount": 2, "more": 1}',
    b"{}",
    b"\xff",
    b'{"order": "o", "amount": "x"}',
    b" null",
)


@given(st.sampled_from(BODIES), st.sampled_from(["", "1", "0", "2", "x"]), st.booleans())
def test_a_body_read_fast_is_the_one_read_slowly(body: bytes, version: str, coded: bool) -> None:
    more = {"ce_eventversion": version, **({"milepost-codec": "other"} if coded else {})}
    envelope, data = usual.read_usual(Record("t", 0, 0, None, body, headers("1", **more), 0))
    about = CodecContext(envelope.type, envelope.event_id, envelope.version, envelope.tenant)

    def outcome(read: Any, *how: Any) -> Any:
        try:
            return read(Paid, data, *how)
        except Unreadable as error:
            return error.code, str(error), error.recoverable

    assert outcome(read_body_of, envelope) == outcome(read_body, about, envelope.extra)


def test_repeated_records_of_a_batch_are_one_candidate() -> None:
    one = Record("t", 0, 1, None, b'{"order": "o"}', tuple(USUAL), 5)
    items = [model.read(one, lambda _: (Paid, _handle), unknown="skip", oldest_ms=0) for _ in range(2)]
    assert model.candidates(items) == items[:1]


async def _handle(event: object, tx: object) -> None: ...
