"""What providers and those who pose as them put into a webhook: nothing of it becomes a secret at rest, or a loop."""

from __future__ import annotations

import json
from typing import Any

from tests.support.hooks import hooks

#: Headers in which providers and gateways send credentials.
SECRET = (
    "x_gitlab_token",
    "x_telegram_bot_api_secret_token",
    "x_auth_token",
    "x_api_key",
    "apikey",
    "x_amz_security_token",
    "proxy_authorization",
    "cookie",
    "x_goog_iap_jwt_assertion",
)


async def test_headers_with_credentials_are_not_stored(database_url: str) -> None:
    secret: dict[str, Any] = dict.fromkeys(SECRET, "hush-hush")
    async with hooks(database_url) as carrier:
        answer = await carrier.send("e-1", x_event_key="repo:push", x_hub_signature="sha1=00", **secret)
        assert answer.status_code == 200
        (row,) = await carrier.rows()
    kept = json.loads(row["headers"])
    assert "hush-hush" not in row["headers"]
    assert {"webhook-id", "x-event-key", "x-hub-signature", "content-length"} <= set(kept)


async def test_an_id_that_no_index_takes_is_not_asked_for_again(database_url: str) -> None:
    """PostgreSQL indexes no more than 2,704 bytes; a 503 would make the provider send it for days."""
    long = "".join(chr(0x10000 + n * 37) for n in range(1000))
    async with hooks(
        database_url, event_id=lambda request: request.json()["id"], tenant=lambda request: ""
    ) as carrier:
        body = json.dumps({"type": "delivered", "id": long}).encode()
        answer = await carrier.send("e-1", body=body)
        assert (answer.status_code, answer.json()["code"]) == (400, "MP452")
        assert await carrier.rows() == []
