"""Is it the event's handler that failed, or something underneath that will come back?"""

from __future__ import annotations

from typing import Any

import asyncpg
from sqlalchemy.exc import DBAPIError

# SQLSTATE classes that say nothing about the event: connection, rollback by serialization or deadlock, resources,
# object in use, operator intervention, system error, internal error.
# https://www.postgresql.org/docs/current/errcodes-appendix.html
_CLASSES = frozenset({"08", "40", "53", "55", "57", "58", "XX"})


def is_infrastructure(error: BaseException) -> bool:
    """Tell whether an error that came out of a handler or a commit is PostgreSQL's own trouble.

    What a handler meets elsewhere (an HTTP call that fails, say) counts as the handler's own failure.
    """
    if isinstance(error, DBAPIError):
        if error.connection_invalidated:
            return True
        error = error.orig if error.orig is not None else error
    for cause in (error, error.__cause__):
        state = getattr(cause, "sqlstate", None)
        if isinstance(state, str):
            return state[:2] in _CLASSES
    return False


def is_lost(connection: asyncpg.Connection[Any]) -> bool:
    """Tell whether a connection is of no more use, whatever its error looked like."""
    try:
        return connection.is_closed()
    except asyncpg.InterfaceError:
        return True


def at_commit(error: BaseException) -> bool:
    """Tell whether an error of the commit itself is trouble underneath: the connection, the driver, the network."""
    driver = OSError | TimeoutError | asyncpg.InterfaceError | asyncpg.InternalClientError
    return is_infrastructure(error) or isinstance(error, driver)
