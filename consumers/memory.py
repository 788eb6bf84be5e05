"""Whether what is kept is kept long enough: the inbox for events that come again, and what is told of runs. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from ..schemas.errors import StartError
from ..schemas.settings import Settings

_UNITS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def too_short(settings: Settings, kept: Mapping[str, timedelta | None]) -> list[StartError]:
    """Return a refusal for each topic whose events can come again after the inbox has forgotten them.

    An event can come for as long as its topic keeps it; parked at the end of that, it can be redriven for
    `redrive_within` more. Topics that keep their records for good are left out: what lies below the stored position
    counts there as applied (see `inbox.model.read`).

    Args:
        kept: How long each topic keeps its records; None for good.
    """
    return [
        StartError(
            "MP202",
            f'keep_inbox={written(settings.keep_inbox)} is shorter than topic "{topic}" retention {written(retention)} '
            f"+ longest redrive {written(settings.redrive_within)}: an old event could be applied twice. Set "
            f"MILEPOST_KEEP_INBOX={written(retention + settings.redrive_within)} or more.",
        )
        for topic, retention in sorted(kept.items())
        if retention is not None and settings.keep_inbox < retention + settings.redrive_within
    ]


def shorter_than_runs(settings: Settings) -> list[StartError]:
    """Return a refusal for each kind that is told of runs and would have to go before them, which nothing does."""
    kept = {name: getattr(settings, name) for name in ("keep_requests", "keep_history", "keep_audit")}
    return [
        StartError(
            "MP230",
            f"{name}={written(length)} is shorter than keep_runs={written(settings.keep_runs)}: what is told of a run "
            f"stays as long as the run, so it would not be gone when you think. Set MILEPOST_{name.upper()}="
            f"{written(settings.keep_runs)} or more, or MILEPOST_KEEP_RUNS={written(length)} or less.",
        )
        for name, length in kept.items()
        if length < settings.keep_runs
    ]


def written(length: timedelta) -> str:
    """Write a duration as settings take it, in the largest unit that it is a whole number of: 7d, 36h, 90m."""
    seconds = -(-length // timedelta(seconds=1))
    size, unit = next(found for found in _UNITS if seconds % found[0] == 0)
    return f"{seconds // size}{unit}"
