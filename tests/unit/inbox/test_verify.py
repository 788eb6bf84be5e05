"""Signatures of webhooks, against the official library of Standard Webhooks and the providers' published examples."""

from __future__ import annotations

import base64
import hashlib
import hmac
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from milepost import DefinitionError, HmacSignature, SignatureRefused, StandardWebhooks, Verifier
from milepost.inbox.webhook_model import headers_of, kept_headers
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER = "whsec_" + base64.b64encode(b"another secret of 24 byte").decode()
BODY = b'{"test": 2432232314}'
MINUTE = timedelta(minutes=1)


def signed(
    body: bytes = BODY, *, secret: str = SECRET, at: datetime = NOW, event: str = "msg_1"
) -> dict[str, str]:
    """Headers as the official library makes them."""
    return {
        "webhook-id": event,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": Webhook(secret).sign(event, at, body.decode()),
    }


def refusal(verifier: Verifier, headers: dict[str, str], body: bytes = BODY, now: datetime = NOW) -> str:
    """Why a request is refused; '' when it is not."""
    try:
        verifier.verify(headers, body, now)
    except SignatureRefused as refused:
        return str(refused)
    return ""


def test_what_the_official_library_signs_is_taken() -> None:
    assert refusal(StandardWebhooks(SECRET), signed()) == ""


@given(
    st.text(st.characters(codec="utf-8"), max_size=200),
    st.text("abcXYZ_-0123456789", min_size=1, max_size=40),
)
def test_any_body_and_id_that_the_official_library_signs_is_taken(body: str, event: str) -> None:
    headers = signed(body.encode(), event=event)
    assert refusal(StandardWebhooks(SECRET), headers, body.encode()) == ""
    assert refusal(StandardWebhooks(SECRET), headers, body.encode() + b" ") == "no signature fits"
    assert refusal(StandardWebhooks(SECRET), headers | {"webhook-id": event + "x"}, body.encode()) != ""


def test_we_sign_what_the_official_library_takes() -> None:
    """The same bytes are signed on both sides: a signature of ours is accepted by it."""
    at = datetime.now(UTC)
    stamp = str(int(at.timestamp()))
    key = base64.b64decode(SECRET.removeprefix("whsec_"))
    mac = hmac.new(key, f"msg_1.{stamp}.".encode() + BODY, hashlib.sha256).digest()
    headers = {
        "webhook-id": "msg_1",
        "webhook-timestamp": stamp,
        "webhook-signature": "v1," + base64.b64encode(mac).decode(),
    }
    assert refusal(StandardWebhooks(SECRET), headers, now=at) == ""
    Webhook(SECRET).verify(BODY, headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(OTHER).verify(BODY, headers)
    assert refusal(StandardWebhooks(OTHER), headers, now=at) == "no signature fits"


def test_rotation_on_either_side() -> None:
    both = signed() | {
        "webhook-signature": f"v1a,x {signed(secret=OTHER)['webhook-signature']} {signed()['webhook-signature']}"
    }
    assert refusal(StandardWebhooks(SECRET), both) == "", "the sender signs with the old and the new secret"
    assert refusal(StandardWebhooks(OTHER, SECRET), signed()) == "", (
        "the receiver takes the old and the new secret"
    )
    assert refusal(StandardWebhooks(SECRET), signed(secret=OTHER)) == "no signature fits"


@pytest.mark.parametrize(
    ("offset", "refused"),
    [
        (timedelta(0), ""),
        (-5 * MINUTE, ""),
        (5 * MINUTE, ""),
        (-5 * MINUTE - timedelta(seconds=1), "its timestamp is too old"),
        (5 * MINUTE + timedelta(seconds=1), "its timestamp is too far ahead"),
    ],
)
def test_the_replay_window(offset: timedelta, refused: str) -> None:
    assert refusal(StandardWebhooks(SECRET), signed(at=NOW + offset)) == refused
    wide = StandardWebhooks(SECRET, tolerance=timedelta(hours=1))
    assert refusal(wide, signed(at=NOW + offset)) == ""


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_a_missing_header(name: str) -> None:
    headers = signed()
    del headers[name]
    assert refusal(StandardWebhooks(SECRET), headers) == f"header {name} is missing"
    assert refusal(StandardWebhooks(SECRET), headers | {name: ""}) == f"header {name} is missing"


@pytest.mark.parametrize(
    "changed",
    [
        {"webhook-timestamp": "now"},
        {"webhook-timestamp": "1e9"},
        {"webhook-timestamp": "²"},
        {"webhook-timestamp": "9" * 40},
        {"webhook-signature": "v1"},
        {"webhook-signature": "v1,"},
        {"webhook-signature": "v1,***"},
        {"webhook-signature": "v2,aGVsbG8="},
        {"webhook-signature": "v1,aGVsbG8="},
        {"webhook-signature": "ÿ"},
    ],
)
def test_odd_headers_are_refused_and_nothing_else_is_raised(changed: dict[str, str]) -> None:
    assert refusal(StandardWebhooks(SECRET), signed() | changed) != ""


@given(
    st.dictionaries(
        st.sampled_from(["webhook-id", "webhook-timestamp", "webhook-signature", "x-s"]), st.text()
    )
)
def test_no_headers_make_it_raise_something_else(headers: dict[str, str]) -> None:
    assert refusal(StandardWebhooks(SECRET), headers) != ""
    assert refusal(HmacSignature("s", header="x-s"), headers) != ""


def test_github() -> None:
    """The example of GitHub's documentation on validating webhook deliveries."""
    verifier = HmacSignature("It's a Secret to Everybody", header="X-Hub-Signature-256", prefix="sha256=")
    signature = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    assert refusal(verifier, {"x-hub-signature-256": f"sha256={signature}"}, b"Hello, World!") == ""
    assert (
        refusal(verifier, {"x-hub-signature-256": f"sha256={signature}"}, b"Hello, World")
        == "no signature fits"
    )
    assert refusal(verifier, {"x-hub-signature-256": signature}, b"Hello, World!") != "", (
        "the prefix belongs to it"
    )


def mac(secret: str, text: bytes, hash: str = "sha256") -> str:
    return hmac.new(secret.encode(), text, hash).hexdigest()


def test_stripe() -> None:
    verifier = HmacSignature(
        "s-1", "s-2", header="stripe-signature", timestamp_field="t", signature_field="v1"
    )
    stamp = str(int(NOW.timestamp()))
    good = mac("s-2", f"{stamp}.".encode() + BODY)
    assert refusal(verifier, {"stripe-signature": f"t={stamp},v1={'0' * 64},v1={good},v0=abc"}) == ""
    assert refusal(verifier, {"stripe-signature": f"t={stamp},v0={good}"}) != ""
    assert (
        refusal(verifier, {"stripe-signature": f"v1={good}"})
        == "header stripe-signature names no single time"
    )
    assert refusal(verifier, {"stripe-signature": f"t={stamp},t=1,v1={good}"}) != ""
    later = NOW + 6 * MINUTE
    assert (
        refusal(verifier, {"stripe-signature": f"t={stamp},v1={good}"}, now=later)
        == "its timestamp is too old"
    )


def test_slack() -> None:
    """The example of Slack's documentation on verifying requests."""
    verifier = HmacSignature(
        "8f742231b10e8888abcd99yyyzzz85a5",
        header="x-slack-signature",
        prefix="v0=",
        timestamp_header="x-slack-request-timestamp",
        signed="v0:{timestamp}:{body}",
    )
    body = (
        b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name="
        b"foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2F"
        b"hooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id="
        b"398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
    )
    headers = {
        "x-slack-request-timestamp": "1531420618",
        "x-slack-signature": "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
    }
    assert refusal(verifier, headers, body, datetime.fromtimestamp(1531420618, UTC)) == ""
    assert refusal(verifier, headers, body, NOW) == "its timestamp is too old"


@pytest.mark.parametrize("hash", ["sha1", "sha256", "sha384", "sha512"])
def test_hash_and_base64(hash: str) -> None:
    verifier = HmacSignature(b"k", header="x-s", hash=hash, encoding="base64")  # type: ignore[arg-type]
    good = base64.b64encode(hmac.new(b"k", BODY, hash).digest()).decode()
    assert refusal(verifier, {"x-s": good}) == ""
    assert refusal(verifier, {"x-s": good[1:2] + good[:1] + good[2:]}) != ""


@pytest.mark.parametrize(
    "make",
    [
        StandardWebhooks,
        lambda: StandardWebhooks("whsec_"),
        lambda: StandardWebhooks("whsec_hunter2!"),
        lambda: HmacSignature(header="x"),
        lambda: HmacSignature("hunter2", "", header="x"),
        lambda: HmacSignature("hunter2", header="x", timestamp_field="t"),
        lambda: HmacSignature("hunter2", header="x", signed="{timestamp}{body}"),
        lambda: HmacSignature("hunter2", header="x", signed="no body"),
        lambda: HmacSignature("hunter2", header="x", timestamp_header="t", signed="{body}"),
    ],
)
def test_a_wrong_declaration_is_refused_without_showing_the_secret(make: object) -> None:
    with pytest.raises(DefinitionError, match="MP455") as raised:
        make()  # type: ignore[operator]
    assert "hunter2" not in str(raised.value)


def test_no_representation_shows_a_secret() -> None:
    assert "hunter2" not in repr(HmacSignature("hunter2", header="x"))
    assert SECRET[6:] not in repr(StandardWebhooks(SECRET))


def test_credentials_are_not_kept() -> None:
    headers = headers_of([(b"Cookie", b"a"), (b"AUTHORIZATION", b"b"), (b"X-Id", b"1"), (b"x-id", b"2\x00")])
    assert headers == {"cookie": "a", "authorization": "b", "x-id": "1, 2\x00"}
    assert kept_headers(headers) == '{"x-id": "1, 2\ufffd"}'
