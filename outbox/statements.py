"""What publishing says to the database, whichever driver says it.

A generator yields statements and is sent their rows, so that one sequence serves callers that await and callers that
block. One row without a lock, which is what most transactions publish, is one statement and goes ahead of all that.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, TypeAlias

from ..schemas.errors import StateError, UsageError
from ..streams.database import Sql as DatabaseSql
from ..streams.database import check_level
from ..streams.drivers import Rows, Run, RunSync
from .model import OutboxRow, columns, lock_numbers, values
from .refusals import too_large
from .store import Sql

_CHECK_VIOLATION = "23514"
#: Keys that one call may lock. With its default settings (max_locks_per_transaction 64, max_connections 100) a server
#: has room for some 7000 locks, and who meets a full table fails, whatever it wanted to lock.
MOST_LOCKS = 1000


class _Statement(NamedTuple):
    """SQL with $1 placeholders, and its arguments."""

    sql: str
    arguments: Sequence[Any] = ()


class _Refused(NamedTuple):
    """Why no row was inserted, in the columns of insert_rows."""

    topic: str
    known: bool
    keyless: bool
    max_bytes: int
    size: int
    type: str


#: Yields statements, is sent the rows of each.
_Statements: TypeAlias = Generator[_Statement, Rows, None]


async def insert(
    rows: Sequence[OutboxRow], run: Run, *, lock_key: bool = False, call: str = "publish()"
) -> None:
    """Insert rows, all or none, on a connection that is awaited.

    Args:
        lock_key: First take the locks of their keys, until the transaction ends.
        call: Name of the public function, for errors.

    Raises:
        UsageError: MP307 lock_key above READ COMMITTED, MP312 over the topic's limit, MP313 unknown topic, MP314 key
            missing on a compacted topic, MP319 lock_key with too many keys; the transaction is then unharmed.
        StateError: MP410 when the outbox has no partition for today.
    """
    with _NAMED:
        if len(rows) == 1 and not lock_key and await run.count(Sql.insert_row, values(rows[0])):
            return
        statements = _insertion(rows, lock_key, call)
        statement = next(statements, None)
        while statement is not None:
            statement = _next(statements, await run(*statement))


def insert_sync(rows: Sequence[OutboxRow], run: RunSync, *, lock_key: bool, call: str) -> None:
    """Insert rows as `insert` does, on a connection that blocks.

    Raises:
        UsageError, StateError: As `insert`.
    """
    with _NAMED:
        if len(rows) == 1 and not lock_key and run.count(Sql.insert_row, values(rows[0])):
            return
        statements = _insertion(rows, lock_key, call)
        statement = next(statements, None)
        while statement is not None:
            statement = _next(statements, run(*statement))


def _insertion(rows: Sequence[OutboxRow], lock_key: bool, call: str) -> _Statements:
    if not rows:
        return
    if lock_key:
        ((level,),) = yield _Statement(DatabaseSql.isolation)
        check_level(level, call.replace("()", "(lock_key=True)"))
        yield _Statement(Sql.lock_keys, [_few(lock_numbers(rows), call)])
    found = yield _Statement(Sql.insert_rows, columns(rows))
    if not found:
        return
    refused = _Refused(*found[0])
    where = f"{call}: {refused.type}"
    if not refused.known:
        names = yield _Statement(Sql.known_topics)
        raise UsageError(
            "MP313",
            f"{where}: topic {refused.topic!r} is unknown. Known: {', '.join(row[0] for row in names)}. Create it, or "
            "correct the name.",
        )
    if refused.keyless:
        raise UsageError(
            "MP314",
            f"{where}: topic {refused.topic!r} is compacted, and a record without a key cannot be kept there. "
            f"Declare key= on the event, or pass key= to {call}.",
        )
    raise too_large(f"{refused.type} for topic {refused.topic!r}", refused.size, refused.max_bytes)


def _few(numbers: list[int], call: str) -> list[int]:
    if len(numbers) > MOST_LOCKS:
        raise UsageError(
            "MP319",
            f"{call}: lock_key=True with {len(numbers)} keys, and one call takes {MOST_LOCKS}: PostgreSQL's table of "
            "locks is small, and all sessions share it. Publish in smaller transactions.",
        )
    return numbers


def _next(statements: _Statements, rows: Rows) -> _Statement | None:
    try:
        return statements.send(rows)
    except StopIteration:
        return None


def partition_named() -> AbstractContextManager[None]:
    """Say what it means that no partition of the outbox takes a row.

    Raises:
        StateError: MP410 when the outbox has no partition for today.
    """
    return _NAMED


class _PartitionNamed:
    """Holds nothing, so that one serves all; a generator would cost ten times as much."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and getattr(error, "sqlstate", None) == _CHECK_VIOLATION:
            raise StateError(
                "MP410",
                "publish(): the outbox has no partition for today. Run `milepost migrate`, and `milepost serve` "
                "with the role upkeep, which makes them a week ahead.",
            ) from error


_NAMED = _PartitionNamed()
