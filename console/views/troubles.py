"""What stands still without standing in front of a person: a relay that has stopped, a worker that is gone."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import asyncpg

from ...recovery.ages import Age, troubles
from ...recovery.observing import look
from ...recovery.permissions import Scope

#: What tells of processes and not of anybody's runs, so that whoever may see the worklist sees it.
_OF_ALL = frozenset({"worker", "consumer", "outbox"})
#: What the worklist lists by itself, row by row; a held key by the letter that holds it.
_LISTED = frozenset({"dead_letter", "outbox_parked", "hold", "step_unknown", "proposal"})
#: Where to look, by what stands still; else the run.
_PAGES = {
    "consumer": "/outbox",
    "outbox": "/outbox",
    "worker": "/resources",
    "signal_unmatched": "/signals",
    "resource_queue": "/resources",
}


async def standing_still(connection: asyncpg.Connection[Any], scope: Scope) -> list[Age]:
    """Return what stands still, the worst first; of what is not the reader's nothing.

    Args:
        connection: To the database, without an open transaction.
        scope: What may be seen.
    """
    if connection.is_in_transaction():
        return []
    return seen(troubles((await look(connection)).ages), scope)


def seen(ages: Iterable[Age], scope: Scope) -> list[Age]:
    """Return what somebody may see: ages of tenants together tell nothing to whoever may see one."""
    return [age for age in ages if age.what not in _LISTED and _may(age, scope)]


def _may(age: Age, scope: Scope) -> bool:
    if age.what in _OF_ALL:
        return True
    whole = scope.tenants is None
    return whole and (scope.sagas is None or age.saga in scope.sagas)


def since(age: Age, now: datetime) -> datetime:
    """Return since when it waits."""
    return now - timedelta(seconds=age.seconds or 0.0)


def page_of(age: Age) -> str:
    """Return where to look."""
    return f"/runs/{age.run}" if age.run else _PAGES.get(age.what, "/")
