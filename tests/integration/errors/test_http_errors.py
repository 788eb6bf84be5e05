"""What the errors that httpx and aiohttp really raise mean; docs/errors.md says the same."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import httpx
import pytest
from milepost.consumers.classify import Classified, classify, retry_after

from tests.support.badhttp import bad_http, deaf, stranger, unread

Client = Callable[..., Awaitable[None]]

SHORT = 0.3


async def by_httpx(url: str, *, body: bytes = b"x", pool: float = 5.0, connect: float = 5.0) -> None:
    timeout = httpx.Timeout(SHORT, connect=connect, pool=pool)
    async with httpx.AsyncClient(timeout=timeout, follow_redirects=True, trust_env=False) as client:
        (await client.post(url, content=body)).raise_for_status()


async def by_aiohttp(url: str, *, body: bytes = b"x", pool: float = 5.0, connect: float = 5.0) -> None:
    timeout = aiohttp.ClientTimeout(sock_read=SHORT, sock_connect=connect, total=30)
    async with aiohttp.ClientSession(timeout=timeout, raise_for_status=True) as session:
        async with session.post(url, data=body) as answer:
            await answer.read()


BOTH = pytest.mark.parametrize("post", [by_httpx, by_aiohttp])


async def meaning(call: Awaitable[None]) -> Classified:
    try:
        await call
    except Exception as error:
        return classify(error, {})
    raise AssertionError("nothing was raised")


async def told(call: Awaitable[None]) -> tuple[str, str]:
    found = await meaning(call)
    return found.verdict, found.code


@BOTH
async def test_a_request_that_never_left(post: Client, tmp_path: Path) -> None:
    assert await told(post("http://127.0.0.1:1/")) == ("not_sent", "CONNECT_FAILED")
    assert await told(post("http://nowhere.invalid/")) == ("not_sent", "NAME_NOT_RESOLVED")
    async with deaf() as address:
        assert await told(post(f"http://{address}/", connect=SHORT)) == ("not_sent", "CONNECT_TIMEOUT")
    async with bad_http() as address:
        assert await told(post(f"https://{address}/")) == ("not_sent", "TLS_FAILED")
    async with bad_http(stranger(tmp_path)) as address:
        assert await told(post(f"https://{address}/")) == ("not_sent", "TLS_FAILED")
    assert await told(post("nothing://at.all/")) == ("fatal", "INVALID_URL")


async def test_no_connection_of_the_pool_was_free() -> None:
    limits = httpx.Limits(max_connections=1)
    timeout = httpx.Timeout(5.0, pool=SHORT)
    async with bad_http() as address, httpx.AsyncClient(limits=limits, timeout=timeout) as client:
        async with client.stream("GET", f"http://{address}/404"):

            async def second() -> None:
                await client.get(f"http://{address}/404")

            assert await told(second()) == ("not_sent", "POOL_TIMEOUT")


@BOTH
async def test_an_answer_that_never_came_or_broke_off(post: Client) -> None:
    async with bad_http() as address:
        assert await told(post(f"http://{address}/hang")) == ("unknown", "TIMEOUT")
        assert await told(post(f"http://{address}/gone")) == ("unknown", "CONNECTION_LOST")
        assert await told(post(f"http://{address}/cut")) == ("unknown", "CONNECTION_LOST")


async def test_a_request_that_could_not_be_written_to_its_end() -> None:
    async with unread() as address:
        post = by_httpx(f"http://{address}/", body=b"x" * 50_000_000)
        assert await told(post) == ("unknown", "TIMEOUT")


async def test_an_answer_that_cannot_be_read() -> None:
    async with bad_http() as address:
        assert await told(by_httpx(f"http://{address}/garbage")) == ("unknown", "UNREADABLE_ANSWER")
        assert await told(by_httpx(f"http://{address}/loop")) == ("unknown", "UNREADABLE_ANSWER")


@BOTH
async def test_statuses_and_how_long_to_wait(post: Client) -> None:
    async with bad_http() as address:
        found = {n: await meaning(post(f"http://{address}/{n}")) for n in (429, 503, 502, 504, 500, 422, 404)}
    assert {n: (one.verdict, one.code) for n, one in found.items()} == {
        429: ("retry", "HTTP_429"),
        503: ("retry", "HTTP_503"),
        502: ("retry", "HTTP_502"),
        504: ("retry", "HTTP_504"),
        500: ("unknown", "HTTP_500"),
        422: ("fatal", "HTTP_422"),
        404: ("fatal", "HTTP_404"),
    }
    waits = {n: one.retry_after for n, one in found.items() if one.retry_after is not None}
    assert waits == {429: timedelta(seconds=7), 503: timedelta(seconds=30)}


@BOTH
async def test_a_conflict_that_says_what_became_of_the_first_request_is_no_definite_no(post: Client) -> None:
    async with bad_http() as address:
        found = {path: await told(post(f"http://{address}/{path}")) for path in ("409", "unknown", "done")}
    assert found == {
        "409": ("fatal", "HTTP_409"),
        "unknown": ("unknown", "HTTP_409"),
        "done": ("unknown", "HTTP_409"),
    }


def test_retry_after_in_seconds_and_as_a_date() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    date = "Thu, 01 Jan 2026 00:02:00 GMT"
    assert retry_after({"Retry-After": " 120 "}) == timedelta(minutes=2)
    assert retry_after({"Retry-After": date}, now) == timedelta(minutes=2)
    assert retry_after({"Retry-After": date}, now + timedelta(hours=1)) == timedelta(0)
    # The server's own clock counts, however wrong ours is.
    assert retry_after({"Retry-After": date, "Date": "Thu, 01 Jan 2026 00:01:30 GMT"}, now) == timedelta(
        seconds=30
    )
    for wrong in ("-1", "1.5", "9999999", "tomorrow", "", "²"):
        assert retry_after({"Retry-After": wrong}, now) is None, wrong
    assert retry_after(None) is None and retry_after({}) is None
