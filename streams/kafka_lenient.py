"""Reading records whose header names are no UTF-8, one by one and in their places.

aiokafka's parser raises at such a record, and again for whatever else is read of the same batch, the good records
behind it included. Where leniency is on, batches are parsed by its parser in Python, and of such a record offset,
timestamp, key and value are kept; its headers are replaced by one that says why.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from aiokafka.consumer import fetcher
from aiokafka.errors import CorruptRecordException
from aiokafka.record import default_records, memory_records
from aiokafka.record.util import decode_varint

#: Header of a record that could not be read; its value says why.
UNREADABLE = "milepost-unreadable"
#: Byte of a batch that has the version of its format.
_MAGIC = 16


class Leniency:
    """Whether what a consumer fetches from now on is parsed leniently, which takes several times as long."""

    def __init__(self, on: bool = False) -> None:
        self.on = on

    def passed(self, records: Iterable[Any]) -> None:
        """Look at records that were polled; with the first that is unreadable leniency has done what it is for."""
        if self.on and any(name == UNREADABLE for record in records for name, _ in record.headers):
            self.on = False


_present: ContextVar[Leniency | None] = ContextVar("milepost leniency", default=None)


@contextmanager
def obeying(leniency: Leniency) -> Generator[None]:
    """Let a consumer that is started in this block parse as `leniency` says, as long as it lives.

    Its fetching runs in tasks that begin with its start, and so keep the context of the start.
    """
    token = _present.set(leniency)
    try:
        yield
    finally:
        _present.reset(token)


class _Records:
    """The batches of a fetched piece."""

    def __init__(self, data: bytes) -> None:
        self._records: Any = memory_records._MemoryRecordsPy(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._records, name)

    def next_batch(self) -> Any:
        """Return the next batch, None after the last."""
        found = self._records._next_slice
        if found is None or len(found) <= _MAGIC or found[_MAGIC] < 2:
            return self._records.next_batch()
        self._records._cache_next()
        return _Batch(found)


class _Batch:
    """A batch in the format that has headers."""

    def __init__(self, data: Any) -> None:
        self._batch: Any = default_records._DefaultRecordBatchPy(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __iter__(self) -> _Batch:
        iter(self._batch)
        return self

    def __next__(self) -> Any:
        try:
            return next(self._batch)
        except CorruptRecordException as error:
            if not isinstance(error.__cause__, UnicodeDecodeError):
                raise
            return self._without_headers(error.__cause__)

    def _without_headers(self, why: UnicodeDecodeError) -> Any:
        """Read the record that the parser has stopped at.

        Format: https://kafka.apache.org/documentation/#record
        """
        batch = self._batch
        buffer = batch._buffer
        length, begin = decode_varint(buffer, batch._pos)
        _, at = decode_varint(buffer, begin)
        later, at = decode_varint(buffer, at)
        place, at = decode_varint(buffer, at)
        key, at = _bytes(buffer, at)
        value, at = _bytes(buffer, at)
        batch._pos = begin + length
        batch._next_record_index += 1
        by_broker = batch.timestamp_type == batch.LOG_APPEND_TIME
        return default_records._DefaultRecordPy(
            batch.base_offset + place,
            batch.max_timestamp if by_broker else batch.first_timestamp + later,
            batch.timestamp_type,
            key,
            value,
            [(UNREADABLE, f"a header name is no UTF-8 ({why}); headers are left out".encode())],
        )


def _bytes(buffer: bytearray, at: int) -> tuple[bytes | None, int]:
    length, at = decode_varint(buffer, at)
    return (None, at) if length < 0 else (bytes(buffer[at : at + length]), at + length)


_strict: Any = fetcher.MemoryRecords


def _records(data: bytes) -> Any:
    leniency = _present.get()
    return _Records(data) if leniency is not None and leniency.on else _strict(data)


# The fetcher finds the parser by this name. For a consumer that is not started in `obeying` nothing changes.
fetcher.MemoryRecords = _records
