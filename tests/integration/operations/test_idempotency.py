"""IdempotencyMiddleware around a real FastAPI app on a real socket: answers, records, and lines in the ledger."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import httpx
import pytest
from milepost import Settings
from milepost.consumers.classify import classify

from tests.support.engine import settings_for
from tests.support.keyed import Shop, keyed
from tests.support.waiting import until

KEY = '"k-1"'


@pytest.fixture
async def shop(database_url: str) -> AsyncIterator[Shop]:
    async with keyed(database_url, max_body=2000) as shop:
        yield shop


def problem(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """Check that an answer is a problem."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = answer.json()
    assert (body["status"], body["code"]) == (status, code)
    assert body["detail"] and body["title"] and body["type"]
    return body


async def effects(shop: Shop) -> int:
    return await shop.bank.count("effect")


async def test_the_same_request_gets_the_stored_answer(shop: Shop) -> None:
    first = await shop.post(KEY)
    assert (first.status_code, first.json()) == (201, {"number": 1, "amount": 1})
    assert "idempotency-replayed" not in first.headers and "set-cookie" in first.headers
    for _ in range(3):
        again = await shop.post(KEY)
        assert (again.status_code, again.content) == (201, first.content)
        assert again.headers["idempotency-replayed"] == "true"
        assert (again.headers["location"], again.headers["content-type"]) == (
            "/payments/1",
            "application/json",
        )
        assert "set-cookie" not in again.headers
    assert await effects(shop) == 1
    assert await shop.states() == [("SUCCEEDED", None)]


async def test_a_client_error_is_an_answer_like_another(shop: Shop) -> None:
    for _ in range(2):
        assert (await shop.post(KEY, how="404")).json() == {"detail": "said so"}
    assert await effects(shop) == 1


async def test_another_request_is_422(shop: Shop) -> None:
    await shop.post(KEY)
    problem(await shop.post(KEY, amount=2), 422, "MP460")
    problem(await shop.post(KEY, path="/streams"), 422, "MP460")
    problem(await shop.post(KEY, path="/payments?x=1"), 422, "MP460")
    spaced = b'{"how":"well",   "amount":1}'
    headers = {"Idempotency-Key": KEY, "content-type": "application/json"}
    again = await shop.client.post("/payments", content=spaced, headers=headers)
    assert again.headers["idempotency-replayed"] == "true", "JSON counts by its value"
    assert await effects(shop) == 1


async def test_while_it_runs_it_is_409_with_retry_after(shop: Shop) -> None:
    running = asyncio.create_task(shop.post(KEY, how="slowly"))
    await asyncio.wait_for(shop.begun.wait(), 30)
    for _ in range(3):
        answer = await shop.post(KEY, how="slowly")
        body = problem(answer, 409, "MP461")
        assert int(answer.headers["retry-after"]) >= 1 and body["instance"].startswith("urn:uuid:")
    problem(await shop.post(KEY), 422, "MP460")
    shop.go_on.set()
    assert (await running).status_code == 201
    assert (await shop.post(KEY, how="slowly")).headers["idempotency-replayed"] == "true"
    assert await effects(shop) == 1


async def test_twenty_at_once_are_handled_once(shop: Shop) -> None:
    answers = await asyncio.gather(*(shop.post(KEY) for _ in range(20)))
    assert {answer.status_code for answer in answers} <= {201, 409}
    assert await effects(shop) == 1


async def test_tenants_are_independent(shop: Shop) -> None:
    numbers = [
        (await shop.post(KEY, x_tenant=tenant)).json()["number"] for tenant in ("", "acme", "umbrella")
    ]
    assert numbers == [1, 2, 3]
    assert (await shop.post(KEY, amount=5, x_tenant="other")).status_code == 201


async def test_an_expired_answer_is_a_new_request(database_url: str) -> None:
    async with keyed(database_url, keep=timedelta(hours=1)) as shop:
        await shop.post(KEY)
        await shop.pool.execute(
            "UPDATE milepost.operation SET expires_at = expires_at - interval '61 minutes'"
        )
        assert (await shop.post(KEY, amount=2)).json() == {"number": 2, "amount": 2}


async def test_without_a_key_and_with_other_methods_requests_pass(shop: Shop) -> None:
    for _ in range(2):
        assert (await shop.post(None)).status_code == 201
    body = {"amount": 1, "how": "well"}
    for _ in range(2):
        headers = {"Idempotency-Key": KEY}
        assert (await shop.client.patch("/payments", json=body, headers=headers)).status_code == 200
    assert (await effects(shop), await shop.states()) == (4, [])


async def test_a_key_that_is_required_or_is_none(database_url: str) -> None:
    async with keyed(database_url, required=True, docs="https://api.example/idempotency") as shop:
        answer = await shop.post(None)
        body = problem(answer, 400, "MP465")
        assert answer.headers["link"] == '<https://api.example/idempotency#MP465>; rel="describedby"'
        assert body["type"] == "https://api.example/idempotency#MP465"
        for wrong in ("k-1", '""', '"a" "b"', '"' + "x" * 256 + '"'):
            problem(await shop.post(wrong), 400, "MP465")
        assert (await effects(shop), await shop.states()) == (0, [])
        assert (await shop.post(KEY)).status_code == 201


async def test_a_body_over_the_limit_is_413(shop: Shop) -> None:
    answer = await shop.client.post("/payments", content=b" " * 2001, headers={"Idempotency-Key": KEY})
    problem(answer, 413, "MP451")
    assert await shop.states() == []


@pytest.mark.parametrize("status", [401, 403, 429, 503])
async def test_an_answer_that_says_that_nothing_was_done_is_not_kept(shop: Shop, status: int) -> None:
    for n in range(2):
        assert (await shop.post(KEY, how=str(status))).status_code == status
        assert await effects(shop) == n + 1, "the app is asked again"
    assert await shop.states() == [("PENDING", f"HTTP_{status}")]


@pytest.mark.parametrize("status", [500, 502, 504])
async def test_a_server_error_leaves_it_unknown(shop: Shop, status: int) -> None:
    assert (await shop.post(KEY, how=str(status))).status_code == status
    answer = await shop.post(KEY, how=str(status))
    body = problem(answer, 409, "MP462")
    assert answer.headers["idempotency-outcome"] == "unknown"
    with pytest.raises(httpx.HTTPStatusError) as refused:
        answer.raise_for_status()
    assert classify(refused.value, {}).verdict == "unknown", "no definite no to our own callers"
    assert answer.headers["link"] == f'<{body["instance"]}>; rel="related"'
    assert "retry-after" not in answer.headers
    assert (await effects(shop), await shop.states()) == (1, [("UNKNOWN", f"HTTP_{status}")])


async def test_an_exception_in_the_app_leaves_it_unknown(shop: Shop) -> None:
    assert (await shop.post(KEY, how="raising")).status_code == 500
    problem(await shop.post(KEY, how="raising"), 409, "MP462")
    assert (await effects(shop), await shop.states()) == (1, [("UNKNOWN", "RUNTIMEERROR")])


async def test_an_answer_that_is_too_long_is_sent_on_and_not_kept(shop: Shop) -> None:
    long = await shop.post(KEY, amount=100, path="/streams")
    assert (long.status_code, len(long.content)) == (200, 10_000)
    assert await shop.states() == [("SUCCEEDED", "ANSWER_NOT_KEPT")]
    again = await shop.post(KEY, amount=100, path="/streams")
    problem(again, 409, "MP466")
    assert again.headers["idempotency-outcome"] == "done"
    short = [await shop.post('"k-2"', amount=20, path="/streams") for _ in range(2)]
    assert [len(answer.content) for answer in short] == [2000, 2000]
    assert short[1].headers["idempotency-replayed"] == "true"
    assert await effects(shop) == 2


async def test_a_client_that_goes_away_finds_the_answer_later(shop: Shop) -> None:
    with pytest.raises(httpx.ReadTimeout):
        await shop.client.post(
            "/payments",
            json={"amount": 1, "how": "slowly"},
            headers={"Idempotency-Key": KEY},
            timeout=httpx.Timeout(60, read=0.5),
        )
    await asyncio.wait_for(shop.begun.wait(), 30)
    shop.go_on.set()
    await until(lambda: _succeeded(shop), within=30, what="the answer")
    answer = await shop.post(KEY, how="slowly")
    assert (answer.status_code, answer.headers["idempotency-replayed"]) == (201, "true")
    assert await effects(shop) == 1


async def _succeeded(shop: Shop) -> bool:
    return await shop.states() == [("SUCCEEDED", None)]


async def test_a_slow_request_keeps_its_lease(database_url: str) -> None:
    async with keyed(database_url, lease=timedelta(seconds=0.6)) as shop:
        running = asyncio.create_task(shop.post(KEY, how="slowly"))
        await asyncio.wait_for(shop.begun.wait(), 30)
        query = "SELECT wake_at > created_at + interval '2 s' FROM milepost.operation"
        await until(lambda: shop.pool.fetchval(query), within=30, what="a renewal")
        problem(await shop.post(KEY, how="slowly"), 409, "MP461")
        shop.go_on.set()
        assert (await running).status_code == 201


async def test_one_that_loses_its_lease_is_cancelled_and_unknown(database_url: str) -> None:
    async with keyed(database_url, lease=timedelta(seconds=0.6)) as shop:
        running = asyncio.create_task(shop.post(KEY, how="slowly"))
        await asyncio.wait_for(shop.begun.wait(), 30)
        await shop.pool.execute("UPDATE milepost.operation SET wake_at = now() - interval '1 s'")
        problem(await running, 409, "MP462")
        assert await shop.states() == [("UNKNOWN", "WORKER_LOST")]


async def test_without_the_store_the_app_is_not_called(shop: Shop) -> None:
    good: Settings = shop.service.settings
    shop.service._settings = settings_for("postgresql://nobody@127.0.0.1:1/nowhere")
    answer = await shop.post(KEY)
    problem(answer, 503, "MP453")
    assert int(answer.headers["retry-after"]) > 0
    assert await effects(shop) == 0
    shop.service._settings, shop.service._database = good, None
    assert (await shop.post(KEY)).status_code == 201


async def test_a_store_that_goes_away_after_the_effect(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("milepost.consumers.held.STORE_WITHIN", 0.3)
    async with keyed(database_url, lease=timedelta(seconds=0.6)) as shop:
        running = asyncio.create_task(shop.post(KEY, how="slowly"))
        await asyncio.wait_for(shop.begun.wait(), 30)
        await shop.pool.execute("ALTER TABLE milepost.operation RENAME TO gone")
        shop.go_on.set()
        assert (await running).status_code in {201, 409}, "it is answered all the same"
        problem(await shop.post('"k-2"'), 503, "MP453")
        await shop.pool.execute("ALTER TABLE milepost.gone RENAME TO operation")
        await until(lambda: _unknown(shop), within=30, what="the end of the lease")
        assert await effects(shop) == 1


async def _unknown(shop: Shop) -> bool:
    answer = await shop.post(KEY, how="slowly")
    assert answer.status_code == 409
    return bool(answer.json()["code"] == "MP462")
