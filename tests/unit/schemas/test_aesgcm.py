"""The encrypting codec: what it binds, how keys change, and what it never shows."""

from __future__ import annotations

import base64
import hashlib
import logging
import pickle
import secrets
import traceback
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st
from milepost import (
    AesGcm,
    CodecContext,
    Coded,
    Consumer,
    DefinitionError,
    Event,
    Settings,
    Unreadable,
    UsageError,
)
from milepost.inbox.intake import Intake
from milepost.schemas import aesgcm
from milepost.schemas.codecs import JSON, decoded
from milepost.schemas.ids import SystemClock
from milepost.streams.database import Database

from tests.support.inbox import nothing_published

OLD, NEW = secrets.token_bytes(32), secrets.token_bytes(32)
ABOUT = CodecContext(
    type="shop.paid", event_id="01a229a3-0a02-78fd-a351-aa23f707da47", version=2, tenant="acme"
)
BODY = b'{"card":"4111 1111 1111 1111"}'


def refused(code: str, call: Any) -> Unreadable:
    with pytest.raises(Unreadable) as raised:
        call()
    assert raised.value.code == code
    assert "4111" not in str(raised.value)
    return raised.value


@given(st.binary(max_size=2000))
def test_what_goes_in_comes_out_and_lies_nowhere_in_between(body: bytes) -> None:
    codec = AesGcm({"k": OLD})
    coded = codec.encode(body, ABOUT)
    assert codec.decode(coded, ABOUT) == body
    assert len(coded.data) == len(body) + 28
    assert len(body) < 4 or body not in coded.data


def test_it_is_what_others_would_make_of_it() -> None:
    """Nonce, ciphertext and tag under the additional data that docs/publishing.md tells."""
    coded = AesGcm({"k": OLD}).encode(BODY, ABOUT)
    parts = [b"aes-256-gcm", b"k", b"shop.paid", ABOUT.event_id.encode(), b"2", b"acme"]
    bound = b"".join(str(len(part)).encode() + b":" + part for part in parts)
    assert AESGCM(OLD).decrypt(coded.data[:12], coded.data[12:], bound) == BODY
    assert coded.headers == {"milepost-codec": "aes-256-gcm", "milepost-key-id": "k"}
    assert coded.content_type == "application/octet-stream"


def test_every_event_has_a_nonce_of_its_own() -> None:
    codec = AesGcm({"k": OLD})
    nonces = {codec.encode(BODY, ABOUT).data[:12] for _ in range(2000)}
    assert len(nonces) == 2000


def test_the_first_key_writes_and_all_read() -> None:
    before, between, after = AesGcm({"1": OLD}), AesGcm({"2": NEW, "1": OLD}), AesGcm({"2": NEW})
    old, new = before.encode(BODY, ABOUT), between.encode(BODY, ABOUT)
    assert (old.headers["milepost-key-id"], new.headers["milepost-key-id"]) == ("1", "2")
    assert between.decode(old, ABOUT) == between.decode(new, ABOUT) == after.decode(new, ABOUT) == BODY
    assert refused("KEY_UNKNOWN", lambda: after.decode(old, ABOUT)).recoverable
    assert refused("KEY_UNKNOWN", lambda: before.decode(new, ABOUT)).recoverable
    refused("KEY_UNKNOWN", lambda: before.decode(Coded(old.data), ABOUT))


@pytest.mark.parametrize("field", ["type", "event_id", "version", "tenant"])
def test_a_body_belongs_to_its_event(field: str) -> None:
    codec = AesGcm({"k": OLD})
    coded = codec.encode(BODY, ABOUT)
    changed: dict[str, Any] = {field: 3 if field == "version" else "x"}
    refused("DECRYPT_FAILED", lambda: codec.decode(coded, replace(ABOUT, **changed)))


@given(st.data())
def test_a_changed_byte_is_found(data: st.DataObject) -> None:
    codec = AesGcm({"k": OLD})
    coded = codec.encode(BODY, ABOUT)
    at = data.draw(st.integers(0, len(coded.data) - 1))
    bit = data.draw(st.integers(0, 7))
    wrong = bytearray(coded.data)
    wrong[at] ^= 1 << bit
    refused("DECRYPT_FAILED", lambda: codec.decode(replace(coded, data=bytes(wrong)), ABOUT))
    cut = replace(coded, data=coded.data[:at])
    refused("DECRYPT_FAILED", lambda: codec.decode(cut, ABOUT))


def test_another_value_under_the_same_name_is_told_apart() -> None:
    coded = AesGcm({"k": OLD}).encode(BODY, ABOUT)
    refused("DECRYPT_FAILED", lambda: AesGcm({"k": NEW}).decode(coded, ABOUT))


def test_plain_and_foreign_bodies() -> None:
    codec = AesGcm({"k": OLD})
    refused("NOT_ENCRYPTED", lambda: decoded(codec, BODY, {}, ABOUT))
    assert decoded(AesGcm({"k": OLD}, reads_plain=True), BODY, {}, ABOUT) == BODY
    refused("CODEC_UNKNOWN", lambda: decoded(codec, BODY, {"milepost-codec": "rot13"}, ABOUT))
    sealed = codec.encode(BODY, ABOUT)
    refused("CODEC_UNKNOWN", lambda: decoded(JSON, sealed.data, sealed.headers, ABOUT))
    assert decoded(JSON, BODY, {}, ABOUT) == BODY


def text_of(key: bytes) -> str:
    return base64.b64encode(key).decode()


def test_keys_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(aesgcm.VARIABLE, f" 2026-11:{text_of(NEW)}, 2026-05:{text_of(OLD)},")
    codec = AesGcm()
    assert codec.decode(AesGcm({"2026-05": OLD}).encode(BODY, ABOUT), ABOUT) == BODY
    assert codec.encode(BODY, ABOUT).headers["milepost-key-id"] == "2026-11"


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ("", "there is none"),
        (text_of(OLD), "entry 1"),
        (f"a:{text_of(OLD)},a:{text_of(NEW)}", "twice"),
        ("a:%%%", "no base64"),
        (f"a:{text_of(OLD[:16])}", "32 bytes"),
        (f"ü:{text_of(OLD)}", "printable ASCII"),
    ],
    ids=("empty", "no-name", "twice", "no-base64", "short", "name"),
)
def test_wrong_keys_are_named_and_not_shown(monkeypatch: pytest.MonkeyPatch, value: str, word: str) -> None:
    monkeypatch.setenv(aesgcm.VARIABLE, value)
    with pytest.raises(UsageError, match="MP346") as raised:
        AesGcm().encode(BODY, ABOUT)
    told = "".join(traceback.format_exception(raised.value))
    assert word in raised.value.text
    assert not any(part and part in told for part in (text_of(OLD), text_of(NEW), text_of(OLD[:16])))


def test_wrong_keys_in_code_are_found_at_import() -> None:
    wrong: Any
    for wrong in ({}, {"a": b"short"}, {"a": text_of(OLD)}, {"": OLD}):
        with pytest.raises(UsageError, match="MP346"):
            AesGcm(wrong)


def test_a_function_gives_keys_when_they_are_needed() -> None:
    asked = []

    def vault() -> Mapping[str, bytes]:
        asked.append(1)
        return {"k": OLD}

    codec = AesGcm(vault)
    assert asked == [] and codec.decode(codec.encode(BODY, ABOUT), ABOUT) == BODY and asked == [1]


def test_nothing_shows_a_key(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    codec = AesGcm({"k": OLD})

    class Paid(Event, type="shop.paid", topic="paid", codec=codec):
        card: str

    shown = [
        repr(codec),
        str(codec),
        f"{codec!r}",
        repr(Paid),
        repr(Paid.milepost_spec),
        repr(vars(codec)),
        caplog.text,
    ]
    for form in (text_of(OLD), OLD.hex(), repr(OLD)[2:-1]):
        assert not any(form in text for text in shown)
    with pytest.raises(TypeError):
        pickle.dumps(codec)


def test_digests_are_keyed_and_outlive_a_change_of_keys() -> None:
    body = b"shop.pay 4111"
    (old,) = AesGcm({"1": OLD}).digests(body)
    new, *earlier = AesGcm({"2": NEW, "1": OLD}).digests(body)
    assert earlier == [old] and new != old and len(old) == 32
    assert hashlib.sha256(body).digest() not in {old, new}, "nobody without a key can guess the body back"
    assert AesGcm({"1": OLD}).digests(body + b"1") != [old]
    assert JSON.digests(body) == [hashlib.sha256(body).digest()]


def test_a_consumer_without_keys_does_not_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(aesgcm.VARIABLE, raising=False)

    class Paid(Event, type="shop.paid", topic="paid", codec=AesGcm()):
        card: str

    async def handle(event: Paid, tx: Any) -> None: ...

    consumer = Consumer("billing")
    consumer.on(Paid)(handle)
    values: dict[str, Any] = {"database_url": "postgresql://nobody@127.0.0.1:1/shop"}
    with pytest.raises(UsageError, match="MP346"):
        Intake(consumer, Database(Settings(**values)), nothing_published, clock=SystemClock())


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(DefinitionError, match=r"MP347.*milepost\[encryption\]"):
        AesGcm({"k": OLD})


def test_what_is_derived_from_a_secret_is_secret() -> None:
    class Paid(Event, type="shop.paid", topic="paid", codec=AesGcm({"k": OLD})):
        card: str

    class Refunded(Paid, type="shop.refunded", topic="paid"):
        why: str

    assert Refunded.milepost_spec.codec is Paid.milepost_spec.codec
    wrong: Any = AesGcm
    with pytest.raises(DefinitionError, match=r"MP106.*codec"):

        class Odd(Event, type="shop.odd", topic="paid", codec=wrong):
            pass
