"""Whether the transaction that a handler or step was given is still the one that was begun for it.

Local looks only, no statement: SQLAlchemy makes a new transaction object after each end, and the driver knows from the
server's last answer whether a transaction is open. What they cannot tell apart is a raw COMMIT or ROLLBACK followed by
a raw BEGIN on the driver connection itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from ..schemas.errors import UsageError

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession


def ended_in_transaction() -> UsageError:
    """Make the error of a handler or step that ended its own transaction."""
    return UsageError(
        "MP332",
        "a handler or step must not commit, roll back or close its transaction: Milepost commits it together with "
        "the mark that the work is done, and that is no longer possible. Use `async with session.begin_nested():` "
        "(asyncpg: `async with tx.connection.transaction():`) for a part that may fail.",
    )


def watch(connection: asyncpg.Connection[Any] | PoolConnectionProxy[Any]) -> Callable[[], bool]:
    """Return a function that tells whether the open transaction of a driver connection was ended.

    A connection that was lost counts as not ended: the next statement says what happened.
    """

    def ended() -> bool:
        return not connection.is_closed() and not connection.is_in_transaction()

    return ended


class SessionGuard:
    """Refuses commits of a session's transaction until they are due, and tells whether it was ended.

    Args:
        session: Its transaction has begun.
        connection: The session's connection in it.
        driver: The connection under that.
    """

    def __init__(
        self, session: AsyncSession, connection: AsyncConnection, driver: asyncpg.Connection[Any]
    ) -> None:
        from sqlalchemy import event  # noqa: PLC0415 - whoever made the session has it

        self._session = session.sync_session
        self._connection = connection.sync_connection
        assert self._connection is not None, "the session's connection is open"
        self._driver_ended = watch(driver)
        self._driver = driver
        self._outer = self._session.get_transaction()
        self._inner = self._connection.get_transaction()
        self.may_commit = False
        event.listen(self._connection, "commit", self._committing)

    def ended(self) -> bool:
        """Tell whether the transaction was ended by a commit, rollback or close, or by a failed flush."""
        if self._session.get_transaction() is not self._outer:
            return True
        if self._driver.is_closed():
            return False
        assert self._connection is not None
        inner = self._connection.get_transaction()
        return inner is None or inner is not self._inner or not inner.is_active or self._driver_ended()

    def ended_beneath(self) -> bool:
        """Tell whether the transaction was ended by a statement that SQLAlchemy does not know of."""
        assert self._connection is not None
        inner = self._connection.get_transaction()
        return inner is not None and inner.is_active and self._driver_ended()

    def _committing(self, connection: Connection) -> None:
        # Before anything is sent, so that neither half an effect nor a mark without its effect is committed.
        if not self.may_commit:
            raise ended_in_transaction()
