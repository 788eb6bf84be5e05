"""Kafka's record batch, format 2, written as it stands on the wire.

aiokafka's builder takes one record at a time, and would write what most records have in common anew for each. Here the
bytes of common headers (packing.py) and keys are kept, and a batch is joined once.

Source: https://kafka.apache.org/documentation/#recordbatch
"""

from __future__ import annotations

import struct
from typing import Final

from aiokafka.record.util import calc_crc32c

#: Offset, length, leader epoch, magic and checksum of a batch; then what the checksum is over: attributes, last offset
#: delta, first and last timestamp, producer's id, epoch and first number, number of records.
_HEAD, _SUMMED = struct.Struct(">qiibI"), struct.Struct(">hiqqqhii")
_HEAD_BYTES = _HEAD.size + _SUMMED.size
#: What its length counts: all that follows it.
_AFTER_LENGTH = _HEAD_BYTES - 12
_MAGIC, _NO_EPOCH = 2, -1
_KEPT_VARINTS = 70_000


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


VARINT: Final = _Varints()
_NULL = VARINT[-1]


class _Begins(dict[int, bytes]):
    """How records of a batch begin, by their number in it: attributes and the timestamp's delta are 0."""

    def __missing__(self, number: int) -> bytes:
        found = self[number] = b"\0\0" + VARINT[number]
        return found


_BEGIN = _Begins()


def sized(data: bytes | None) -> bytes:
    """Return bytes with their length before them, as keys, values and the parts of headers are written."""
    return _NULL if data is None else VARINT[len(data)] + data


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
        seqs = self.seqs
        begin = _BEGIN[len(seqs)]
        value, length = (b"", _NULL) if value is None else (value, VARINT[len(value)])
        body = len(begin) + len(key) + len(length) + len(value) + len(headers)
        whole = VARINT[body]
        size = self._size + len(whole) + body
        if size > self._limit and seqs:
            return False
        self._size = size
        seqs.append(seq)
        self._parts += (whole, begin, key, length, value, headers)
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
