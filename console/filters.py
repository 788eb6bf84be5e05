"""The options of `milepost runs list`, read."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from ..schemas.errors import UsageError
from ..schemas.states import RunState
from .store import Wanted


def read_states(texts: Sequence[str]) -> list[RunState]:
    """Read --state, in whatever case.

    Raises:
        UsageError: MP601 naming the states there are.
    """
    found = []
    for text in texts:
        try:
            found.append(RunState(text.strip().upper()))
        except ValueError:
            known = ", ".join(state.value for state in RunState)
            raise UsageError(
                "MP601", f"--state {text}: there is no such state. There are: {known}."
            ) from None
    return found


def read_since(text: str) -> timedelta | datetime:
    """Read --since: a duration such as "2h" or "7d", or an RFC 3339 time.

    Raises:
        UsageError: MP601 when it is neither.
    """
    from ..schemas.settings import parse_duration

    with suppress(ValueError):
        length = parse_duration(text)
        if isinstance(length, timedelta):
            return length
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            "MP601",
            f"--since {text!r} is neither a duration (30m, 2h, 7d) nor a time (2026-12-02T18:00:00Z).",
        ) from None
    return instant if instant.tzinfo is not None else instant.replace(tzinfo=UTC)


def read_age(text: str) -> timedelta:
    """Read --older: a duration such as "2h" or "7d".

    Raises:
        UsageError: MP601 when it is none.
    """
    from ..schemas.settings import parse_duration

    with suppress(ValueError):
        length = parse_duration(text)
        if isinstance(length, timedelta):
            return length
    raise UsageError("MP601", f"--older {text!r} is no duration, such as 30m, 2h, 7d.")


def wanted(
    states: Sequence[RunState],
    *,
    saga: str | None,
    key: str | None,
    correlation: str | None,
    since: str | None,
    limit: int,
) -> Wanted:
    """Put the options of `runs list` together.

    Raises:
        UsageError: MP601 for a --since that cannot be read.
    """
    begun = read_since(since) if since is not None else None
    return Wanted(
        states=tuple(states),
        saga=saga,
        key=key,
        correlation=correlation,
        since=begun if isinstance(begun, timedelta) else None,
        after=begun if isinstance(begun, datetime) else None,
        limit=limit,
    )
