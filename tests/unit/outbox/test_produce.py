"""Produce requests are byte for byte what aiokafka writes."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest
from aiokafka.protocol.produce import ProduceRequest
from hypothesis import given
from hypothesis import strategies as st
from milepost.outbox.produce import encoded, write_once

BATCHES = st.lists(st.tuples(st.integers(0, 2**31 - 1), st.binary(max_size=50).map(bytearray)), max_size=4)


class Client:
    """Prepares what it sends for one version of the request, as a connection does."""

    def __init__(self, version: int) -> None:
        self.versions = {0: (version, version)}

    async def send(self, node_id: int, request: Any, *, group: int = 0) -> Any:
        return (
            node_id,
            group,
            request if isinstance(request, str) else request.prepare(self.versions).encode(),
        )


@given(
    st.none() | st.text(max_size=20),
    st.integers(-1, 1),
    st.integers(0, 2**31 - 1),
    st.lists(st.tuples(st.text(max_size=20), BATCHES), max_size=4),
    st.integers(0, 7),
)
def test_the_bytes_are_aiokafkas(
    name: str | None, acks: int, timeout: int, topics: Any, version: int
) -> None:
    name = None if version < 3 else name
    client: Any = Client(version)
    written = asyncio.run(client.send(1, ProduceRequest(name, acks, timeout, topics), group=2))
    write_once(client)
    assert asyncio.run(client.send(1, ProduceRequest(name, acks, timeout, topics), group=2)) == written


async def test_other_requests_pass() -> None:
    client: Any = Client(7)
    write_once(client)
    assert await client.send(1, "metadata") == (1, 0, "metadata")


@pytest.mark.parametrize("batch", [b"", b"x" * 100_000, bytearray(b"y")])
def test_whatever_holds_the_batch(batch: bytes) -> None:
    request = ProduceRequest(None, -1, 1, [("t", [(0, batch)])]).prepare({0: (7, 7)})
    assert encoded(None, -1, 1, [("t", [(0, batch)])]) == request.encode()


async def test_nothing_of_it_waits_for_the_collector() -> None:
    client: Any = Client(7)
    write_once(client)
    request = ProduceRequest(None, -1, 1, [("t", [(0, b"x")])])
    gone = weakref.ref(request)
    gc.disable()
    try:
        await client.send(1, request)
        del request
        assert gone() is None
    finally:
        gc.enable()
