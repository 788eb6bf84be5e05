"""What callers of operations are told when there is no result for them."""

from __future__ import annotations

from datetime import timedelta

from ..schemas.errors import ConnectError, IdempotencyKeyReused, OperationInProgress, OutcomeUnknown


def key_reused(place: str, state: str) -> IdempotencyKeyReused:
    """The key belongs to another request."""
    return IdempotencyKeyReused(
        "MP460",
        f"{place}: IDEMPOTENCY_KEY_REUSED: this key belongs to another request ({state}). The same request gets the "
        "stored answer; a new intent needs a new key.",
    )


def in_progress(place: str, after: timedelta | None) -> OperationInProgress:
    """Somebody does it now."""
    error = OperationInProgress(
        "MP461", f"{place}: IN_PROGRESS: the same request is being worked on. Ask again in a moment."
    )
    error.retry_after = after
    return error


def outcome_unknown(place: str, why: str, after: timedelta | None, *, asked: bool) -> OutcomeUnknown:
    """Nobody knows whether it took effect.

    Args:
        why: A code, and what is to be said of it.
        asked: Whether a probe settles it when it is asked for again.
    """
    fix = "Ask again later: its probe is asked then." if asked else "A person has to look at the other side."
    error = OutcomeUnknown("MP462", f"{place}: nobody knows whether it took effect ({why}). {fix}")
    error.retry_after = after
    return error


def not_begun(place: str, error: BaseException) -> ConnectError:
    """The store is away, and nothing was begun."""
    return ConnectError(
        "MP468",
        f"{place}: PostgreSQL did not answer ({type(error).__name__}: {error}), so nothing was begun by this call. Try "
        "again with the same key.",
    )


def not_stored(place: str, state: str, error: BaseException) -> ConnectError:
    """The store went away after the effect."""
    return ConnectError(
        "MP468",
        f"{place} ended {state}, and PostgreSQL did not store that ({type(error).__name__}). Ask again with the same "
        "key: it is then settled as repeat= says.",
    )
