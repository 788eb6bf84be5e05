"""Rows become whole record batches per partition, or are set aside with the reason."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeAlias

from aiokafka.partitioner import DefaultPartitioner
from pydantic_core import from_json, to_json

from .position import Row
from .routing import LATER_ROOM, Parked, Routing, record_size

TopicPartition: TypeAlias = tuple[str, int]
Headers: TypeAlias = list[tuple[str, bytes]]

#: Kafka's default message.max.bytes is 1,048,588 for a whole batch; batches stay below it.
BATCH_BYTES = 1_000_000
#: Rows between two turns of the event loop: about two milliseconds.
_SLICE = 250

_INVALID = "the row's headers are no JSON object"
_KEYLESS = "the topic is compacted and takes no record without a key"

_partitioner = DefaultPartitioner()


@lru_cache(maxsize=65_536)
def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition of a key as a plain send chooses it: murmur2 as in the Java client."""
    found: int = _partitioner(key, range(partitions), ())
    return found


def headers_of(text: str) -> Headers:
    """Return a row's headers, given as jsonb prints them: shorter names first, ", " and ": " between.

    What rows have in common is read once. Their own are cut out: id, time and trace; where no backslash is in the
    text every quote begins or ends a name or a value, so that nothing else can be taken for one of them. Reading all
    of it as JSON takes nearly twice the time, a sixth of the relay's.
    """
    if text.startswith('{"ce_id": "') and "\\" not in text:
        id_ends = text.find('"', 11)
        time_ends = text.find('"', id_ends + 15)
        trace = text.find('"traceparent": "', time_ends)
        if text.startswith('", "ce_time": "', id_ends) and trace > 0:
            trace_ends = text.find('"', trace + 16)
            return [
                ("ce_id", text[11:id_ends].encode()),
                ("ce_time", text[id_ends + 15 : time_ends].encode()),
                *_read(text[time_ends + 3 : trace - 2]),
                ("traceparent", text[trace + 16 : trace_ends].encode()),
                *_read(text[trace_ends + 3 : -1]),
            ]
    return [(name, _bytes(value)) for name, value in from_json(text).items()]


@lru_cache(maxsize=4096)
def _read(inside: str) -> Headers:
    return [(name, _bytes(value)) for name, value in from_json(f"{{{inside}}}").items()]


def _bytes(value: Any) -> bytes:
    """Return a header's value; publish writes texts only, what else SQL may have written goes as JSON."""
    return value.encode() if isinstance(value, str) else to_json(value)


class Batch:
    """Records of one partition, and the rows they came from.

    aiokafka's own append costs as much again as the builder beneath it, which is used here directly; `seal` then
    tells aiokafka how many records there are.

    Attributes:
        builder: aiokafka's batch.
        seqs: Numbers of the rows in it, in order.
    """

    __slots__ = ("_append", "builder", "seqs")

    def __init__(self, builder: Any) -> None:
        self.builder = builder
        self.seqs: list[int] = []
        self._append = builder._builder.append

    def add(
        self,
        seq: int,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
    ) -> bool:
        """Append a record unless the batch is full; an empty batch takes its first whatever its size.

        Returns:
            False when it was full, and the record is not in it.
        """
        if self._append(len(self.seqs), timestamp, key, value, headers) is None:
            return False
        self.seqs.append(seq)
        return True

    def seal(self) -> None:
        """Make it ready to be sent."""
        self.builder._relative_offset = len(self.seqs)


@dataclass(slots=True)
class Encoded:
    """What becomes of a page's rows."""

    batches: dict[TopicPartition, list[Batch]] = field(default_factory=dict)
    parked: list[Parked] = field(default_factory=list)


class Encoder:
    """Turns rows into batches.

    Args:
        new_batch: Makes an empty batch of the producer.
        partitions: Number of partitions by topic; grows as topics are looked up.
        routing: What is parked instead.
        draining: The topic whose hold is being worked off, if any: its rows are sent, not parked again.
    """

    def __init__(
        self,
        new_batch: Callable[[], Any],
        partitions: Mapping[str, int],
        routing: Routing,
        *,
        draining: str | None = None,
    ) -> None:
        self._new_batch = new_batch
        self._partitions = partitions
        self._routing = routing
        self._draining = draining
        self._spread = 0

    async def encode(self, rows: Sequence[Row], timestamp: int, skip: Collection[int] = ()) -> Encoded:
        """Encode rows in their order.

        Args:
            timestamp: Record timestamp in milliseconds, UTC.
            skip: Numbers of rows that are done already.
        """
        encoded = Encoded()
        for start in range(0, len(rows), _SLICE):
            self._slice(rows[start : start + _SLICE], timestamp, skip, encoded)
            await asyncio.sleep(0)
        for chain in encoded.batches.values():
            for batch in chain:
                batch.seal()
        return encoded

    def _slice(self, rows: Sequence[Row], timestamp: int, skip: Collection[int], encoded: Encoded) -> None:
        batches, partitions = encoded.batches, self._partitions
        careful = self._careful(rows)
        for row in rows:
            seq, topic, key, value, headers_text = row
            if skip and seq in skip:
                continue
            try:
                headers = headers_of(headers_text)
            except (AttributeError, ValueError):
                encoded.parked.append(self._routing.put_aside(row, "ROW_INVALID", _INVALID))
                careful = True
                continue
            key_bytes, size = None if key is None else key.encode(), 0
            if careful or len(value or b"") + len(headers_text) + len(key or "") > BATCH_BYTES // 2:
                size = record_size(key_bytes, value, headers)
                parked = self._routing.refusal(row, size, self._draining)
                if parked is not None:
                    encoded.parked.append(parked)
                    careful = True  # it may hold its key from here on
                    continue
            if key_bytes is None:
                if topic in self._routing.compacted:
                    encoded.parked.append(self._routing.put_aside(row, "KEY_MISSING", _KEYLESS))
                    continue
                self._spread += 1
                partition = self._spread % partitions[topic]
            else:
                partition = partition_of(key_bytes, partitions[topic])
            chain = batches.setdefault((topic, partition), [])
            full = not chain or (careful and self._is_full(topic, chain[-1], seq, size))
            if full or not chain[-1].add(seq, timestamp, key_bytes, value, headers):
                chain.append(Batch(self._new_batch()))
                chain[-1].add(seq, timestamp, key_bytes, value, headers)

    def _careful(self, rows: Sequence[Row]) -> bool:
        """Whether each of these rows has to be looked at; else only large ones are."""
        routing = self._routing
        if routing.held_topics or routing.held_keys or routing.alone or routing.unsendable:
            return True
        tight = routing.tight(BATCH_BYTES)
        return bool(tight) and any(row[1] in tight for row in rows)

    def _is_full(self, topic: str, batch: Batch, seq: int, size: int) -> bool:
        """Whether a record may not join a batch, for reasons that the batch does not know."""
        alone = self._routing.alone
        if alone and (seq in alone or batch.seqs[-1] in alone):
            return True
        room = self._routing.room(topic)
        return room is not None and batch.builder.size() + size + LATER_ROOM > room
