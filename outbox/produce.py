"""aiokafka's produce request, written with one copy of its batches instead of six.

Its parts are joined to partitions, these to topics and those to the request, and each join copies all batches again: a
tenth of the relay's time.

Source of the format: https://kafka.apache.org/protocol#The_Messages_Produce
"""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable
from typing import Any

from aiokafka.protocol.produce import ProduceRequest
from aiokafka.protocol.types import String

_TEXT = String("utf-8")
_ACKS, _COUNT, _PARTITION = struct.Struct(">hi"), struct.Struct(">i"), struct.Struct(">ii")
#: Versions of the request that are written alike; later ones are flexible.
_ALIKE = range(3, 9)


def encoded(request: Any) -> bytes:
    """Return the bytes of a produce request of version 3 to 8."""
    parts = [
        _TEXT.encode(request.transactional_id),
        _ACKS.pack(request.required_acks, request.timeout),
        _COUNT.pack(len(request.topics)),
    ]
    for topic, partitions in request.topics:
        parts += (_TEXT.encode(topic), _COUNT.pack(len(partitions)))
        for partition, batch in partitions:
            parts += (_PARTITION.pack(partition, len(batch)), batch)
    return b"".join(parts)


def write_once(client: Any) -> None:
    """Let a client write its produce requests so.

    Args:
        client: Of an aiokafka producer.
    """
    send: Callable[..., Awaitable[Any]] = client.send

    async def sending(node_id: Any, request: Any, **options: Any) -> Any:
        if isinstance(request, ProduceRequest):
            prepare = request.prepare
            request.prepare = lambda versions: _written_once(prepare(versions))
        return await send(node_id, request, **options)

    client.send = sending


def _written_once(request: Any) -> Any:
    if request.API_VERSION in _ALIKE:
        request.encode = lambda: encoded(request)
    return request
