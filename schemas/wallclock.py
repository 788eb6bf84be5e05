"""Times as people say them, "nine in the morning in Berlin", as instants; with a stated policy for daylight saving."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from typing import Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from .errors import UsageError


def wall_clock(
    day: date,
    at: time,
    zone: str,
    *,
    gap: Literal["after", "before"] = "after",
    fold: Literal["first", "second"] = "first",
) -> datetime:
    """Return the instant at which clocks on the wall of a zone show a time.

    Where clocks are put forward some times are never shown, where they are put back some are shown twice. Both have a
    stated answer, so that a timer fires once.

    Args:
        day: Date in the zone.
        at: Time of the day in the zone, without a zone of its own.
        zone: Name in the IANA time zone database, such as "Europe/Berlin".
        gap: For a time that is never shown: "after" is as long after the change as the time lies behind it (02:30
            becomes 03:30), "before" the last instant before the change.
        fold: For a time that is shown twice: which of them.

    Returns:
        The instant, in UTC.

    Raises:
        UsageError: MP390 for an unknown zone or a time that has a zone.
    """
    try:
        known = ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise UsageError(
            "MP390",
            f"wall_clock(): there is no time zone {zone!r}. Give a name of the IANA database, such as Europe/Berlin.",
        ) from error
    if at.tzinfo is not None:
        raise UsageError(
            "MP390", f"wall_clock(): {at!r} has a time zone of its own. Give the plain time and zone=."
        )
    shown = datetime.combine(day, at, known)
    first, second = shown.replace(fold=0).astimezone(UTC), shown.replace(fold=1).astimezone(UTC)
    if first <= second:  # shown once, or twice
        return first if fold == "first" else second
    return first if gap == "after" else _change(second, first, known)


def _change(low: datetime, high: datetime, zone: ZoneInfo) -> datetime:
    """Return the last whole second before clocks change between two instants."""
    before = low.astimezone(zone).utcoffset()
    while high - low > timedelta(seconds=1):
        middle = low + timedelta(seconds=int((high - low).total_seconds() // 2))
        low, high = (middle, high) if middle.astimezone(zone).utcoffset() == before else (low, middle)
    return low
