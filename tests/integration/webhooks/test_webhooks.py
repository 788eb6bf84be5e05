"""Webhooks through a real FastAPI app on a real socket: what is stored, what is answered, what follows."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from fastapi import FastAPI
from milepost import DefinitionError, StandardWebhooks
from milepost.schemas.ids import SystemIds
from starlette.routing import Route

from tests.support.engine import settings_for
from tests.support.hooks import SECRET, Hooks, event_id, hooks, sent, service_for, to_event
from tests.support.web import http_server


@pytest.fixture
async def carrier(database_url: str) -> AsyncIterator[Hooks]:
    async with hooks(database_url, max_body=2000) as hooked:
        yield hooked


def is_problem(response: object, status: int, code: str) -> None:
    answer = response
    assert answer.status_code == status  # type: ignore[attr-defined]
    assert answer.headers["content-type"] == "application/problem+json"  # type: ignore[attr-defined]
    body = answer.json()  # type: ignore[attr-defined]
    assert (body["status"], body["code"], body["type"]) == (status, code, "about:blank")
    assert body["title"] and body["detail"]


async def test_verified_stored_answered_and_worked_on_later(carrier: Hooks) -> None:
    answer = await carrier.send(
        "e-1", authorization="Bearer s3cret", traceparent=f"00-{'a' * 32}-{'b' * 16}-01"
    )
    assert (answer.status_code, answer.json()) == (200, {"status": "stored"})
    (row,) = await carrier.rows()
    assert (row["state"], row["provider"], row["event_id"], row["attempts"]) == (
        "RECEIVED",
        "carrier",
        "e-1",
        0,
    )
    assert row["body"] == b'{"type": "delivered", "id": "p-e-1"}', "the raw body is kept"
    assert "s3cret" not in row["headers"] and json.loads(row["headers"])["webhook-id"] == "e-1"
    assert await carrier.published() == [], "nothing is done before it is answered"
    assert await carrier.work.turn() == 1
    (row,) = await carrier.rows()
    assert (row["state"], row["wake_at"], row["attempts"]) == ("PROCESSED", None, 1)
    (event,) = await carrier.rows("SELECT id, headers FROM milepost.outbox")
    assert event["id"] == row["published"]
    assert json.loads(event["headers"])["traceparent"].startswith(f"00-{'a' * 32}-"), (
        "one trace, from the provider on"
    )
    assert await carrier.work.turn() == 0
    assert await carrier.published() == ["p-e-1"]


async def test_what_means_nothing_is_ignored(carrier: Hooks) -> None:
    await carrier.send("e-1", "in-transit")
    await carrier.work.turn()
    assert (await carrier.states(), await carrier.published()) == (["IGNORED"], [])


async def test_a_bad_signature_is_refused_and_leaves_nothing(carrier: Hooks) -> None:
    body = b'{"type": "delivered", "id": "p-1"}'
    good = sent("e-1", body)
    wrong = [
        {},
        good | {"webhook-signature": "v1,aGVsbG8="},
        good | {"webhook-id": "e-2"},
        sent("e-1", body, carrier.clock.now() - timedelta(minutes=6)),
        {name: value for name, value in good.items() if name != "webhook-timestamp"},
    ]
    for headers in wrong:
        is_problem(await carrier.client.post("/hooks/carrier/", content=body, headers=headers), 401, "MP450")
    changed = await carrier.client.post("/hooks/carrier/", content=body + b" ", headers=good)
    is_problem(changed, 401, "MP450")
    assert await carrier.rows() == []


async def test_secrets_and_signatures_are_never_logged(
    carrier: Hooks, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="milepost")
    await carrier.send("e-1", webhook_signature="v1,c3VwZXJzZWNyZXQ=")
    await carrier.send("e-2", "trouble")
    await carrier.work.turn()
    assert len(caplog.records) >= 2
    assert (
        SECRET[6:] not in caplog.text
        and "c3VwZXJzZWNyZXQ" not in caplog.text
        and "cannot say" not in caplog.text
    )
    assert "webhook e-2 of carrier: try 1 of 8: LOOKUPERROR LookupError; again in " in caplog.text


async def test_a_repeated_event_id_is_answered_and_does_nothing(carrier: Hooks) -> None:
    assert [(await carrier.send("e-1")).json()["status"] for _ in range(3)] == [
        "stored",
        "repeated",
        "repeated",
    ]
    await carrier.work.turn()
    assert (await carrier.send("e-1")).status_code == 200
    assert await carrier.work.turn() == 0
    assert (await carrier.states(), await carrier.published()) == (["PROCESSED"], ["p-e-1"])


async def test_twenty_copies_at_once_are_one(carrier: Hooks) -> None:
    answers = await asyncio.gather(*(carrier.send("e-1") for _ in range(20)))
    assert sorted(answer.json()["status"] for answer in answers) == ["repeated"] * 19 + ["stored"]
    assert {answer.status_code for answer in answers} == {200}
    await asyncio.gather(*(carrier.work.turn() for _ in range(5)))
    assert await carrier.published() == ["p-e-1"]


async def test_another_body_under_the_same_id_is_recorded_and_the_first_one_stands(carrier: Hooks) -> None:
    await carrier.send("e-1")
    answer = await carrier.send("e-1", body=b'{"type": "delivered", "id": "other"}')
    assert (answer.status_code, answer.json()) == (200, {"status": "conflict"})
    (row,) = await carrier.rows()
    assert (row["conflicts"], row["conflict_at"] is not None) == (1, True)
    await carrier.work.turn()
    assert await carrier.published() == ["p-e-1"]


async def test_tenants_and_providers_are_independent(carrier: Hooks) -> None:
    for tenant in ("", "acme", "umbrella"):
        assert (await carrier.send("e-1", tenant=tenant)).json() == {"status": "stored"}
    await carrier.work.turn()
    rows = await carrier.rows("SELECT tenant FROM milepost.outbox ORDER BY tenant")
    assert [row["tenant"] for row in rows] == ["", "acme", "umbrella"]


async def test_a_body_over_the_limit_is_refused_before_it_is_read(carrier: Hooks) -> None:
    fits = b'{"type": "other", "pad": "' + b"x" * 1972 + b'"}'
    assert len(fits) == 2000
    assert (await carrier.send("e-1", body=fits)).status_code == 200
    is_problem(await carrier.send("e-2", body=fits + b" "), 413, "MP451")
    chunked = "Transfer-Encoding: chunked", b"3e8\r\n" + b"x" * 1000 + b"\r\n"
    for header, part in (chunked, ("Content-Length: 1000000000", b"")):
        head = f"POST /hooks/carrier/ HTTP/1.1\r\nHost: here\r\n{header}\r\n\r\n"
        assert (await unfinished(carrier, head.encode() + part * 3))[:13] == "HTTP/1.1 413 "
    assert len(await carrier.rows()) == 1


async def unfinished(carrier: Hooks, request: bytes) -> str:
    """Return the first line of the answer to a request whose body does not end."""
    url = carrier.client.base_url
    reader, writer = await asyncio.open_connection(url.host, url.port)
    try:
        writer.write(request)
        return (await asyncio.wait_for(reader.readline(), 30)).decode().strip()
    finally:
        writer.close()


async def test_another_method(carrier: Hooks) -> None:
    answer = await carrier.client.get("/hooks/carrier/")
    is_problem(answer, 405, "MP454")
    assert answer.headers["allow"] == "POST"
    assert (await carrier.client.get("/health")).json() == {"status": "ok"}, "the app's own routes go on"


async def test_an_event_id_that_cannot_be_stored(database_url: str) -> None:
    for wrong in (
        lambda r: r.json()["nothing"],
        lambda r: "",
        lambda r: 7,
        lambda r: "a\x00",
        lambda r: "x" * 1001,
    ):
        async with hooks(database_url, event_id=wrong) as carrier:
            is_problem(await carrier.send("e-1"), 400, "MP452")
            assert await carrier.rows() == []
    async with hooks(database_url, tenant=lambda r: None) as carrier:
        is_problem(await carrier.send("e-1"), 400, "MP452")


async def test_the_store_is_unavailable(database_url: str) -> None:
    service, _ = service_for(settings_for("postgresql://nobody@127.0.0.1:1/nowhere"))
    async with hooks(database_url) as carrier:
        carrier.service._settings = service.settings
        answer = await carrier.send("e-1")
        is_problem(answer, 503, "MP453")
        assert int(answer.headers["retry-after"]) > 0
        carrier.service._settings = settings_for(database_url)
        carrier.service._database = None
        assert (await carrier.send("e-1")).json() == {"status": "stored"}


async def test_a_store_that_hangs_is_given_up_in_time(
    carrier: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("milepost.consumers.webhooks.STORE_WITHIN", 0.5)
    async with carrier.pool.acquire() as other, other.transaction():
        await other.execute("LOCK TABLE milepost.webhook IN ACCESS EXCLUSIVE MODE")
        is_problem(await carrier.send("e-1"), 503, "MP453")
    assert (await carrier.send("e-1")).json() == {"status": "stored"}


async def tick(carrier: Hooks) -> None:
    """Let the pause before the next try pass."""
    await carrier.pool.execute(
        "UPDATE milepost.webhook SET wake_at = milepost.clock() WHERE wake_at IS NOT NULL"
    )
    await carrier.work.turn()


async def test_trouble_is_tried_again_with_pauses_and_ends_as_failed(carrier: Hooks) -> None:
    await carrier.send("e-1", "trouble")
    await carrier.send("e-2")
    await carrier.work.turn()
    assert await carrier.published() == ["p-e-2"], "one in trouble holds back no other"
    row = next(row for row in await carrier.rows() if row["event_id"] == "e-1")
    assert (row["state"], row["code"], row["attempts"]) == ("RECEIVED", "LOOKUPERROR", 1)
    for _ in range(7):
        await tick(carrier)
    row = next(row for row in await carrier.rows() if row["event_id"] == "e-1")
    assert (row["state"], row["code"], row["attempts"]) == ("FAILED", "LOOKUPERROR", 8)
    assert "cannot say" in row["message"]
    await tick(carrier)
    assert (await carrier.send("e-1", "trouble")).json() == {"status": "repeated"}


async def test_an_error_of_to_event_is_not_taken_for_the_databases(carrier: Hooks) -> None:
    await carrier.send("e-1", "timeout")
    await carrier.send("e-2")
    await carrier.work.turn()
    rows = {row["event_id"]: (row["state"], row["code"]) for row in await carrier.rows()}
    assert rows == {"e-1": ("RECEIVED", "TIMEOUTERROR"), "e-2": ("PROCESSED", None)}


async def test_refused_is_failed_at_once(carrier: Hooks) -> None:
    await carrier.send("e-1", "refused")
    await carrier.work.turn()
    (row,) = await carrier.rows()
    assert (row["state"], row["code"], row["message"]) == ("FAILED", "NOT_OURS", "another shop's parcel")


async def test_an_event_that_cannot_be_published_is_trouble_and_nothing_is_half_done(carrier: Hooks) -> None:
    await carrier.send("e-1", body=b'{"type": "delivered", "id": "a\\u0000"}')
    await carrier.work.turn()
    (row,) = await carrier.rows()
    assert (row["state"], row["code"], row["published"]) == ("RECEIVED", "MP311", None)
    assert await carrier.published() == []


async def test_many_workers_do_each_once(carrier: Hooks) -> None:
    await asyncio.gather(*(carrier.send(f"e-{n}") for n in range(60)))
    while sum(await asyncio.gather(*(carrier.work.turn() for _ in range(4)))):
        pass
    assert sorted(await carrier.published()) == sorted(f"p-e-{n}" for n in range(60))


async def test_one_whose_worker_is_gone_is_taken_when_its_lease_has_ended(database_url: str) -> None:
    async with hooks(database_url, lease=timedelta(hours=1)) as carrier:
        await carrier.send("e-1")
        await carrier.pool.execute(
            "UPDATE milepost.webhook SET state = 'PROCESSING', fence = 1, attempts = 1, wake_at = now() + '1 h'"
        )
        assert await carrier.work.turn() == 0, "its lease still holds"
        await carrier.pool.execute("UPDATE milepost.webhook SET wake_at = now()")
        await carrier.work.turn()
        assert await carrier.published() == ["p-e-1"]


async def test_one_that_kills_every_process_is_failed(carrier: Hooks) -> None:
    await carrier.send("e-1")
    await carrier.pool.execute(
        "UPDATE milepost.webhook SET state = 'PROCESSING', attempts = 8, wake_at = now()"
    )
    await carrier.work.turn()
    (row,) = await carrier.rows()
    assert (row["state"], row["code"]) == ("FAILED", "PROCESS_DIED")


async def test_a_worker_that_lost_its_fence_changes_nothing(carrier: Hooks) -> None:
    await carrier.send("e-1")
    reached, go_on = asyncio.Event(), asyncio.Event()
    publish = carrier.work._publish

    async def slow(*args: object) -> object:
        reached.set()
        await go_on.wait()
        return await publish(*args)  # type: ignore[arg-type]

    carrier.work._publish = slow  # type: ignore[assignment, method-assign]
    zombie = asyncio.create_task(carrier.work.turn())
    await reached.wait()
    carrier.work._publish = publish  # type: ignore[method-assign]
    await tick(carrier)
    go_on.set()
    await zombie
    assert (await carrier.published(), await carrier.states()) == (["p-e-1"], ["PROCESSED"])


async def test_other_services_and_unknown_providers_are_left_alone(carrier: Hooks) -> None:
    await carrier.send("e-1")
    for column in ("service", "provider"):
        await carrier.pool.execute(f"UPDATE milepost.webhook SET {column} = 'other'")
        assert await carrier.work.turn() == 0
        await carrier.pool.execute(
            "UPDATE milepost.webhook SET service = 'hooks', provider = 'carrier', id = $1", SystemIds().new()
        )
    assert await carrier.work.turn() == 1


def test_wrong_declarations(database_url: str) -> None:
    service, _ = service_for(settings_for(database_url))
    given = {"verify": StandardWebhooks(SECRET), "event_id": event_id, "to_event": to_event}
    for provider, more in (("carrier", {}), ("", {}), ("a\x00", {}), ("bank", {"max_body": 0})):
        with pytest.raises(DefinitionError, match="MP455"):
            service.webhook(provider, **given, **more)  # type: ignore[arg-type]
    assert list(service.webhooks) == ["carrier"]


async def test_a_route_with_the_tenant_in_its_path(database_url: str) -> None:
    async with hooks(database_url) as carrier:
        api = FastAPI()
        api.routes.append(Route("/in/carrier/{tenant}", carrier.service.webhooks["carrier"]))
        body = b'{"type": "other"}'
        async with http_server(api) as client:
            answer = await client.post("/in/carrier/acme", content=body, headers=sent("e-1", body))
            assert answer.json() == {"status": "stored"}
        assert [row["tenant"] for row in await carrier.rows()] == ["acme"]
