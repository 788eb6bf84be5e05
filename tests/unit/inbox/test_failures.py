"""Whose failure is it?"""

from __future__ import annotations

import asyncpg
import pytest
from milepost.inbox.failures import at_commit, is_infrastructure
from sqlalchemy.exc import DBAPIError


def wrapped(error: BaseException, *, invalidated: bool = False) -> DBAPIError:
    return DBAPIError("SELECT 1", None, error, connection_invalidated=invalidated)


@pytest.mark.parametrize(
    "error",
    [
        asyncpg.ConnectionDoesNotExistError("gone"),
        asyncpg.DeadlockDetectedError("deadlock"),
        asyncpg.SerializationError("again"),
        asyncpg.TooManyConnectionsError("full"),
        asyncpg.LockNotAvailableError("locked"),
        asyncpg.AdminShutdownError("bye"),
        asyncpg.DiskFullError("full"),
        asyncpg.DataCorruptedError("torn"),
        wrapped(asyncpg.DeadlockDetectedError("deadlock")),
        wrapped(ValueError("whatever"), invalidated=True),
    ],
)
def test_trouble_underneath_is_not_the_events_fault(error: BaseException) -> None:
    assert is_infrastructure(error)


@pytest.mark.parametrize(
    "error",
    [
        asyncpg.UniqueViolationError("twice"),
        asyncpg.InFailedSQLTransactionError("swallowed"),
        asyncpg.UndefinedTableError("no table"),
        asyncpg.InterfaceError("the server expects 1 argument for this query, 0 were passed"),
        wrapped(asyncpg.CheckViolationError("no")),
        asyncpg.QueryCanceledError("statement timeout"),
        asyncpg.ObjectNotInPrerequisiteStateError("lastval is not yet defined in this session"),
        asyncpg.InternalServerError("an extension's: bad geometry"),
        wrapped(asyncpg.QueryCanceledError("statement timeout")),
        KeyError("parsing"),
        ConnectionRefusedError("an HTTP call of the handler"),
        TimeoutError("an HTTP call of the handler"),
    ],
)
def test_what_a_handler_does_wrong_is_its_own(error: BaseException) -> None:
    assert not is_infrastructure(error)


def test_at_the_commit_the_driver_and_the_network_are_underneath() -> None:
    assert at_commit(ConnectionResetError("reset"))
    assert at_commit(asyncpg.InterfaceError("connection is closed"))
    assert at_commit(asyncpg.QueryCanceledError("shutting down"))
    assert at_commit(asyncpg.InternalServerError("oops"))
    assert not at_commit(asyncpg.ForeignKeyViolationError("deferred"))
