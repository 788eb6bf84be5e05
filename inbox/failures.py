"""Is it the event's handler that failed, or something underneath that will come back?"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, TypeAlias

import asyncpg

from ..schemas.errors import UsageError
from ..streams.alchemy import is_driver_error
from .model import Item, Reason

# SQLSTATE classes that say nothing about the event: connection, rollback by serialization or deadlock, resources,
# object in use, operator intervention, system error, internal error.
# https://www.postgresql.org/docs/current/errcodes-appendix.html
_CLASSES = frozenset({"08", "40", "53", "55", "57", "58", "XX"})

# States of these classes that a statement brings upon itself, every time: a statement that takes longer than its
# timeout, lastval() before any nextval(), internal errors as extensions raise them for bad input.
_OF_THE_STATEMENT = frozenset({"57014", "55000", "XX000"})

_LOST = "08006"


@dataclass(frozen=True, slots=True)
class Judgement:
    """What an exception of a handler says about another try.

    Attributes:
        again: Whether one may help.
        code: Of the dead letter, when none is left.
        retry_after: How long the other side wants to be left alone.
    """

    again: bool
    code: str
    retry_after: timedelta | None = None


Judge: TypeAlias = Callable[[BaseException | None], Judgement]


def another_try(error: BaseException | None) -> Judgement:
    """Judge as one who knows no exceptions: another try may always help."""
    return Judgement(True, "HANDLER_FAILED")


class HandlerFailed(Exception):
    """What a handler raised, or the commit on its behalf; the cause says it.

    Args:
        item: The event whose handler it was, or the first of several; None when only the commit told.
        ended: Whether the handler has ended the transaction that it was given.
        last: The last of the events that it was called with; None for one.
    """

    def __init__(self, item: Any = None, *, ended: bool = False, last: Any = None) -> None:
        super().__init__()
        self.item = item
        self.ended = ended
        self.last = last or item


class Underneath(Exception):
    """Trouble underneath that came up in a handler or at the commit.

    Args:
        error: What was raised there.
        item: The event whose handler it was; None at the commit.
        ended: Whether the handler has ended the transaction that it was given.
    """

    def __init__(self, error: Exception, item: Any = None, *, ended: bool = False) -> None:
        super().__init__()
        self.error = error
        self.item = item
        self.ended = ended


def ended_transaction(error: BaseException | None) -> bool:
    """Tell whether a handler was refused for ending its transaction."""
    return isinstance(error, UsageError) and error.code == "MP332"


def is_infrastructure(error: BaseException) -> bool:
    """Tell whether an error that came out of a handler is PostgreSQL's own trouble.

    What a handler meets elsewhere (an HTTP call that fails, say) counts as the handler's own failure.
    """
    state = _state(error)
    return state is not None and state[:2] in _CLASSES and state not in _OF_THE_STATEMENT


def _state(error: BaseException) -> str | None:
    """Return the SQLSTATE behind an error, if there is one."""
    if is_driver_error(error):
        if error.connection_invalidated:
            return _LOST
        error = error.orig if error.orig is not None else error
    for cause in (error, error.__cause__):
        state = getattr(cause, "sqlstate", None)
        if isinstance(state, str):
            return state
    return None


def is_lost(connection: asyncpg.Connection[Any]) -> bool:
    """Tell whether a connection is of no more use, whatever its error looked like."""
    try:
        return connection.is_closed()
    except asyncpg.InterfaceError:
        return True


def at_commit(error: BaseException) -> bool:
    """Tell whether an error of the commit itself is trouble underneath: the connection, the driver, the network."""
    driver = OSError | TimeoutError | asyncpg.InterfaceError | asyncpg.InternalClientError
    state = _state(error)
    return isinstance(error, driver) or (state is not None and state[:2] in _CLASSES)


def reason_of(cause: BaseException | None, *, secret: bool = False) -> Reason:
    """Return why an event is parked whose handler has raised this.

    Args:
        secret: The event is encrypted: what was raised may quote it, so only its class goes into the letter.
    """
    kind = type(cause)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    if secret:
        message = f"{kind.__name__} (its words are left out, because the event is encrypted)"
        return Reason("HANDLE", "HANDLER_FAILED", message, True, error=name)
    trace = "".join(traceback.format_exception(cause)) if cause is not None else ""
    return Reason("HANDLE", "HANDLER_FAILED", f"{kind.__name__}: {cause}", True, error=name, trace=trace)


def failure(
    item: Item, cause: BaseException | None, judged: Judgement, attempts: int, first_at: datetime
) -> Reason:
    """Return why an event is parked after so many tries."""
    reason = reason_of(cause, secret=item.secret)
    return replace(reason, code=judged.code, attempts=attempts, first_at=first_at)
