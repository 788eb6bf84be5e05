"""IdempotencyMiddleware with servers, answers and decisions of people that are out of the ordinary."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, Response
from fastapi.responses import FileResponse
from milepost import IdempotencyMiddleware, Milepost

from tests.support.engine import settings_for
from tests.support.keyed import keyed, tenant_of
from tests.support.web import http_server

KEY = {"Idempotency-Key": '"k-1"'}


class WithExtensions:
    """A server that sends files by itself, as some do (ASGI's pathsend and zero copy)."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass on, and offer what uvicorn does not."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        offered: dict[str, Any] = {"http.response.pathsend": {}, "http.response.zerocopysend": {}}

        async def sending(message: Any) -> None:
            assert message["type"] in {"http.response.start", "http.response.body"}, "sent past the record"
            await send(message)

        await self.app(
            {**scope, "extensions": offered} if scope["type"] == "http" else scope, receive, sending
        )


@pytest.fixture
async def service(database_url: str) -> AsyncIterator[Milepost]:
    service = Milepost("shop", settings=settings_for(database_url))
    try:
        yield service
    finally:
        await service.close()


async def test_answers_without_content_and_of_files_are_given_again(
    service: Milepost, tmp_path: Path
) -> None:
    api = FastAPI()
    (tmp_path / "file").write_bytes(b"receipt")

    @api.post("/nothing", status_code=204)
    async def nothing() -> Response:
        return Response(status_code=204)

    @api.post("/file")
    async def file() -> FileResponse:
        return FileResponse(tmp_path / "file")

    api.add_middleware(IdempotencyMiddleware, service=service, tenant=tenant_of)
    async with http_server(WithExtensions(api)) as client:
        for replayed in (None, "true"):
            empty = await client.post("/nothing", headers=KEY)
            assert (empty.status_code, empty.headers.get("idempotency-replayed")) == (204, replayed)
            assert "content-length" not in empty.headers
            found = await client.post("/file", headers={"Idempotency-Key": '"k-2"'})
            assert (found.content, found.headers.get("idempotency-replayed")) == (b"receipt", replayed)


async def test_what_a_person_settled_as_failed_is_no_longer_unknown(database_url: str) -> None:
    async with keyed(database_url) as shop:
        await shop.post('"k"', how="500")
        await shop.pool.execute(
            "UPDATE milepost.operation SET state = 'FAILED_FINAL', code = 'NOT_PAID', wake_at = NULL,"
            " expires_at = now() + interval '1 day'"
        )
        answer = await shop.post('"k"', how="500")
        assert (answer.status_code, answer.json()["code"]) == (409, "MP478")
        assert await shop.bank.count("effect") == 1
