"""What of SQLAlchemy a value is, without loading it: whoever passes a session, or catches its error, has done that.

A process whose application does not use it, such as a relay, is 18 MB smaller.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.exc import DBAPIError
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
    from sqlalchemy.orm import Session, scoped_session
    from typing_extensions import TypeIs


def is_async_session(value: object) -> TypeIs[AsyncSession]:
    """Tell whether a value is a session that is awaited."""
    return _is(value, "sqlalchemy.ext.asyncio", "AsyncSession")


def is_async_connection(value: object) -> TypeIs[AsyncConnection]:
    """Tell whether a value is a connection that is awaited."""
    return _is(value, "sqlalchemy.ext.asyncio", "AsyncConnection")


def is_session(value: object) -> TypeIs[Session]:
    """Tell whether a value is a session that blocks."""
    return _is(value, "sqlalchemy.orm", "Session")


def is_scoped(value: object) -> TypeIs[scoped_session[Any]]:
    """Tell whether a value is a registry of sessions."""
    return _is(value, "sqlalchemy.orm", "scoped_session")


def is_connection(value: object) -> TypeIs[Connection]:
    """Tell whether a value is a connection that blocks."""
    return _is(value, "sqlalchemy", "Connection")


def is_driver_error(value: object) -> TypeIs[DBAPIError]:
    """Tell whether an error is SQLAlchemy's, around one of the driver."""
    return _is(value, "sqlalchemy.exc", "DBAPIError")


def _is(value: object, module: str, name: str) -> bool:
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(value, getattr(loaded, name))
