"""aiokafka's produce request, written with one copy of its batches instead of six.

Its parts are joined to partitions, these to topics and those to the request, and each join copies all batches again: a
tenth of the relay's time.

Source of the format: https://kafka.apache.org/protocol#The_Messages_Produce
"""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from aiokafka.protocol.produce import ProduceRequest
from aiokafka.protocol.types import String

_TEXT = String("utf-8")
_ACKS, _COUNT, _PARTITION = struct.Struct(">hi"), struct.Struct(">i"), struct.Struct(">ii")
#: Versions of the request that are written alike; later ones are flexible.
_ALIKE = range(3, 9)


def encoded(
    transactional_id: str | None,
    acks: int,
    timeout: int,
    topics: Sequence[tuple[str, Sequence[tuple[int, bytes]]]],
) -> bytes:
    """Return the bytes of a produce request of version 3 to 8.

    Args:
        timeout: In milliseconds.
        topics: With their partitions' numbers and batches.
    """
    parts = [_TEXT.encode(transactional_id), _ACKS.pack(acks, timeout), _COUNT.pack(len(topics))]
    for topic, partitions in topics:
        parts += (_TEXT.encode(topic), _COUNT.pack(len(partitions)))
        for partition, batch in partitions:
            parts += (_PARTITION.pack(partition, len(batch)), batch)
    return b"".join(parts)


class _WrittenOnce:
    """A produce request that waits for an answer, in place of aiokafka's.

    Nothing here refers to itself: what a cycle holds, batches above all, would stay until Python looks for cycles.
    """

    def __init__(self, request: ProduceRequest) -> None:
        self._request = request

    def prepare(self, versions: Any) -> Any:
        prepared = self._request.prepare(versions)
        if prepared.API_VERSION in _ALIKE:
            fields = prepared.transactional_id, prepared.required_acks, prepared.timeout, prepared.topics
            prepared.encode = partial(encoded, *fields)
        return prepared


def write_once(client: Any) -> None:
    """Let a client write its produce requests so.

    Args:
        client: Of an aiokafka producer that waits for acknowledgements.
    """
    send: Callable[..., Awaitable[Any]] = client.send

    async def sending(node_id: Any, request: Any, **options: Any) -> Any:
        once = _WrittenOnce(request) if isinstance(request, ProduceRequest) else request
        return await send(node_id, once, **options)

    client.send = sending
