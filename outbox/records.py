"""Kafka's record batch, format 2, written as it stands on the wire.

aiokafka's builder takes headers as pairs, one record at a time; what most records have in common would be made and
written anew for each. Here the bytes of common headers and keys are kept, and a batch is joined once.

Source: https://kafka.apache.org/documentation/#recordbatch
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any

from aiokafka.record.util import calc_crc32c
from pydantic_core import from_json, to_json

#: Offset, length, leader epoch, magic and checksum of a batch; then what the checksum is over: attributes, last offset
#: delta, first and last timestamp, producer's id, epoch and first number, number of records.
_HEAD, _SUMMED = struct.Struct(">qiibI"), struct.Struct(">hiqqqhii")
_HEAD_BYTES = _HEAD.size + _SUMMED.size
#: What its length counts: all that follows it.
_AFTER_LENGTH = _HEAD_BYTES - 12
_MAGIC, _NO_EPOCH = 2, -1
_KEPT_VARINTS = 70_000
#: Longest headers of which parts are kept, in characters: 4096 of them need no more than 50 MB.
_KEPT_HEADERS = 4000


class _Varints(dict[int, bytes]):
    """Numbers as Kafka writes lengths: zigzag, seven bits in a byte, low ones first; -1 is null."""

    def __missing__(self, number: int) -> bytes:
        left, out = (number << 1) ^ (number >> 63), bytearray()
        while left > 0x7F:
            out.append(left & 0x7F | 0x80)
            left >>= 7
        out.append(left)
        found = bytes(out)
        if number < _KEPT_VARINTS:
            self[number] = found
        return found


_VARINT = _Varints()
_NULL = _VARINT[-1]


def sized(data: bytes | None) -> bytes:
    """Return bytes with their length before them, as keys, values and the parts of headers are written."""
    return _NULL if data is None else _VARINT[len(data)] + data


class Batch:
    """Records of one partition, and the rows they came from; aiokafka's producer takes it in place of its own.

    All records have the same timestamp, so that none of them needs a delta.

    Args:
        timestamp: In milliseconds, UTC.
        limit: Largest size in bytes; the first record is taken whatever its size.

    Attributes:
        seqs: Numbers of the rows in it, in order.
    """

    __slots__ = ("_limit", "_parts", "_producer", "_size", "_timestamp", "_written", "seqs")

    def __init__(self, timestamp: int, limit: int) -> None:
        self.seqs: list[int] = []
        self._timestamp = timestamp
        self._limit = limit
        self._size = _HEAD_BYTES
        # The first two are for what is known only when it is sent.
        self._parts: list[bytes] = [bytes(_HEAD.size), b""]
        self._producer = (-1, -1, 0)
        self._written: bytearray | None = None

    def add(self, seq: int, key: bytes, value: bytes | None, headers: bytes) -> bool:
        """Append a record unless the batch is full.

        Args:
            key: With its length before it.
            headers: With their number before them, as `headers_of` returns them.

        Returns:
            False when it was full, and the record is not in it.
        """
        delta = _VARINT[len(self.seqs)]
        value, length = (b"", _NULL) if value is None else (value, _VARINT[len(value)])
        body = 2 + len(delta) + len(key) + len(length) + len(value) + len(headers)
        begin = _VARINT[body]
        size = self._size + len(begin) + body
        if size > self._limit and self.seqs:
            return False
        self._size = size
        self.seqs.append(seq)
        # Attributes and the timestamp's delta are 0.
        self._parts += (begin, b"\0\0", delta, key, length, value, headers)
        return True

    def size(self) -> int:
        """Return its size in bytes."""
        return self._size

    def record_count(self) -> int:
        """Return the number of records."""
        return len(self.seqs)

    def closed(self) -> bool:
        """Tell aiokafka not to wait for more records."""
        return True

    def close(self) -> None:
        """Do nothing: it is closed from the beginning."""

    def append(self, **_: object) -> None:
        """Refuse what somebody else would put in."""

    def _set_producer_state(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        self._producer = (producer_id, producer_epoch, base_sequence)

    def _build(self) -> bytearray:
        if self._written is None:
            count, stamp = len(self.seqs), self._timestamp
            self._parts[1] = _SUMMED.pack(0, count - 1, stamp, stamp, *self._producer, count)
            written = bytearray().join(self._parts)
            length = len(written) - _HEAD_BYTES + _AFTER_LENGTH
            checksum = calc_crc32c(memoryview(written)[_HEAD.size :])
            _HEAD.pack_into(written, 0, 0, length, _NO_EPOCH, _MAGIC, checksum)
            self._written, self._parts = written, []
        return self._written


def size_alone(key: bytes, value: bytes | None, headers: bytes) -> int:
    """Return the size in bytes of a batch of this one record, which is what a topic's limit is about.

    Args:
        key: With its length before it.
        headers: As `headers_of` returns them.
    """
    batch = Batch(0, 0)
    batch.add(0, key, value, headers)
    return batch.size()


def headers_of(text: str) -> bytes:
    """Return a row's headers as they stand in its record, from how jsonb prints them.

    jsonb prints shorter names first, with ", " and ": " between. What rows have in common is read once; their own is
    cut out: id, time and trace. Where no backslash is in the text every quote begins or ends a name or a value, so
    that nothing else can be taken for one of them.

    Raises:
        ValueError, AttributeError: It is no JSON object.
    """
    if len(text) <= _KEPT_HEADERS and text.startswith('{"ce_id": "') and "\\" not in text:
        id_ends = text.find('"', 11)
        time_ends = text.find('"', id_ends + 15)
        trace = text.find('"traceparent": "', time_ends)
        if text.startswith('", "ce_time": "', id_ends) and trace > 0:
            trace_ends = text.find('"', trace + 16)
            own = text[11:id_ends].encode()
            time = text[id_ends + 15 : time_ends].encode()
            parent = text[trace + 16 : trace_ends].encode()
            begin, middle, end = _common(text[time_ends + 3 : trace - 2], text[trace_ends + 3 : -1])
            of_own, of_time, of_parent = _VARINT[len(own)], _VARINT[len(time)], _VARINT[len(parent)]
            return b"".join((begin, of_own, own, _TIME, of_time, time, middle, of_parent, parent, end))
    return _written(from_json(text).items())


_ID, _TIME, _TRACE = sized(b"ce_id"), sized(b"ce_time"), sized(b"traceparent")


@lru_cache(maxsize=4096)
def _common(before: str, after: str) -> tuple[bytes, bytes, bytes]:
    """Return what stands before the id, between time and trace, and after that, of headers that are alike."""
    first, last = (list(from_json(f"{{{inside}}}").items()) for inside in (before, after))
    middle, end = (b"".join(_header(*pair) for pair in pairs) for pairs in (first, last))
    return _VARINT[3 + len(first) + len(last)] + _ID, middle + _TRACE, end


def _written(headers: Any) -> bytes:
    found = [_header(name, value) for name, value in headers]
    return _VARINT[len(found)] + b"".join(found)


def _header(name: str, value: Any) -> bytes:
    """Return a header; `publish` writes texts only, what else SQL may have written goes as JSON."""
    return sized(name.encode()) + sized(value.encode() if isinstance(value, str) else to_json(value))
