"""Errors in words for logs and health, without what a statement carried."""

from __future__ import annotations

from .alchemy import is_driver_error


def words_of(error: BaseException) -> str:
    """Return class and message of an error.

    SQLAlchemy adds the statement and its parameters to the driver's message. They may come out of an encrypted event,
    and logs are read by more people than tables; so they stay behind.
    """
    said = error.orig if is_driver_error(error) and error.orig is not None else error
    return f"{type(error).__name__}: {said}"
