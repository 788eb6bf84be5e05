"""A request that had arrived is never taken for one that had not, whatever its exception looks like."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp
import httpx
import pytest
from aiokafka.conn import AIOKafkaConnection
from milepost.consumers.classify import Classified, classify

Respond = Callable[[str], bytes]
Client = Callable[[str], Awaitable[None]]


@asynccontextmanager
async def server(respond: Respond) -> AsyncIterator[str]:
    """Serve one answer per connection; what it returns for a path may be nothing."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            path = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1].decode()
            writer.write(respond(path))
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async with await asyncio.start_server(handle, "127.0.0.1", 0) as listening:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"


async def by_httpx(url: str) -> None:
    async with httpx.AsyncClient(follow_redirects=True, trust_env=False) as client:
        (await client.post(url)).raise_for_status()


async def by_aiohttp(url: str) -> None:
    async with aiohttp.ClientSession(raise_for_status=True) as session, session.post(url):
        pass


BOTH = pytest.mark.parametrize("post", [by_httpx, by_aiohttp])


async def meaning(call: Awaitable[object]) -> Classified:
    try:
        await call
    except Exception as error:
        return classify(error, {})
    raise AssertionError("nothing was raised")


def answer(status: str, *headers: str) -> bytes:
    return "\r\n".join(
        [f"HTTP/1.1 {status}", *headers, "Content-Length: 0", "Connection: close", "", ""]
    ).encode()


@BOTH
async def test_what_fails_after_a_redirect_is_unknown(post: Client) -> None:
    """The payment was made and answered with 303; only its receipt could not be fetched."""
    ways = {
        "/down": answer("303 See Other", "Location: http://127.0.0.1:1/receipt"),
        "/odd": answer("302 Found", "Location: nothing://at.all/"),
        "/lost": answer("303 See Other", "Location: /nowhere"),
        "/again": answer("307 Temporary Redirect", "Location: http://127.0.0.1:1/"),
        "/nowhere": answer("404 Not Found"),
    }
    async with server(lambda path: ways[path]) as url:
        found = {way: (await meaning(post(url + way))).verdict for way in ways}
    assert found == {
        "/down": "unknown",
        "/odd": "unknown",
        "/lost": "unknown",
        "/again": "not_sent",
        "/nowhere": "fatal",
    }


@BOTH
async def test_a_request_under_a_key_that_is_still_being_handled_is_no_refusal(post: Client) -> None:
    ways = {"/running": answer("409 Conflict", "Retry-After: 3"), "/no": answer("409 Conflict")}
    async with server(lambda path: ways[path]) as url:
        running, refused = await meaning(post(url + "/running")), await meaning(post(url + "/no"))
    assert running.verdict == "retry" and running.retry_after is not None
    assert refused.verdict == "fatal"


async def test_a_body_that_was_longer_than_it_said_may_have_been_acted_on() -> None:
    async def parts() -> AsyncIterator[bytes]:
        yield b"0123456789"
        yield b"x"

    async def post(url: str, **headers: str) -> None:
        async with httpx.AsyncClient(trust_env=False) as client:
            given = {name.replace("_", "-"): value for name, value in headers.items()}
            await client.post(url, content=parts(), headers=given)

    async with server(lambda path: answer("201 Created")) as url:
        assert (await meaning(post(url, content_length="10"))).verdict == "unknown"
        assert (await meaning(post(url, bad="line\r\nbreak"))).verdict == "fatal"


async def test_a_broker_that_goes_away_after_the_request() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4)
        writer.close()

    async with await asyncio.start_server(handle, "127.0.0.1", 0) as listening:
        connection = AIOKafkaConnection("127.0.0.1", listening.sockets[0].getsockname()[1])
        try:
            found = await meaning(connection.connect())
        finally:
            connection.close()
    assert (found.verdict, found.code) == ("unknown", "CONNECTION_LOST")


async def test_a_network_that_goes_away_under_an_open_connection() -> None:
    """Linux tells a reader EHOSTUNREACH when its acknowledged request is answered by nobody any more."""
    for number in (errno.EHOSTUNREACH, errno.ENETUNREACH):
        reader = asyncio.StreamReader()
        reader.set_exception(OSError(number, "No route to host"))
        assert (await meaning(reader.read())).verdict == "unknown"
    found = await meaning(asyncio.open_connection("255.255.255.255", 9))
    assert found.verdict == "not_sent"
