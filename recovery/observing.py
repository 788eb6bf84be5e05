"""One look at the database: how old everything is that waits. Bounded, read-only, from one snapshot."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import asyncpg

from ..outbox.log import outbox_state
from ..schemas.ids import uuid7_at
from ..schemas.states import FINAL_RUN_STATES, Risk, RunState
from ..streams.queries import Queries
from .age_kinds import KINDS
from .ages import Age, Seen

#: Most rows of a kind that one look counts, and reads the names of.
MOST = 2_000
#: Most runs of a state that are counted: an index gives them, yet each has to be read.
MOST_RUNS = 5_000
#: Longest time of one statement. A look that takes longer is given up: it must not be what loads the database.
WITHIN = timedelta(seconds=2)
#: How far back acts of persons are followed.
_DAY = timedelta(days=1)
_LIVE = [state.value for state in RunState if state not in FINAL_RUN_STATES]


class Sql(Queries, file="ages.sql"):
    """Queries of this module."""

    bounded: str
    steps: str
    held: str
    persons: str
    of_runs: str
    records: str
    live: str
    workers: str
    resumed: str
    days_ahead: str
    severities: str
    now: str


async def look(connection: asyncpg.Connection[Any], *, most: int = MOST) -> Seen:
    """See how old everything is that waits.

    Args:
        connection: Without an open transaction.
        most: Most rows of a kind that are counted. Of each kind the oldest are looked at, so the age is exact, and
            which workflows have any is as exact as so many rows can say.

    Raises:
        asyncpg.PostgresError: The database refuses, or takes too long.
    """
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        await connection.execute(Sql.bounded, f"{WITHIN.total_seconds() * 1000:.0f}")
        severities = {
            (row["service"], row["saga"]): Risk(row["severity"])
            for row in await connection.fetch(Sql.severities)
        }
        rows: list[asyncpg.Record] = []
        for query in (Sql.steps, Sql.held, Sql.persons, Sql.of_runs, Sql.records):
            rows += await connection.fetch(query, most)
        ages = _merged(_age(row, severities) for row in rows)
        live = await connection.fetch(Sql.live, MOST_RUNS, _LIVE)
        workers = await connection.fetch(Sql.workers)
        days = await connection.fetch(Sql.days_ahead)
        now = await connection.fetchval(Sql.now)
        since = uuid7_at(int((now - _DAY).timestamp() * 1000), 0)
        resumed = await connection.fetch(Sql.resumed, most, since)
    ages.append(await _outbox(connection))
    known = {age.what for age in ages}
    ages += [Age(kind.what, severity=kind.severity) for kind in KINDS.values() if kind.what not in known]
    return Seen(
        ages=tuple(ages),
        live={(row["service"], row["saga"], row["state"]): row["amount"] for row in live},
        workers={row["service"]: row["amount"] for row in workers},
        resumed={(row["service"], row["saga"], row["outcome"]): row["amount"] for row in resumed},
        days={row["parent"]: row["days"] for row in days},
        severities=severities,
    )


def _age(row: asyncpg.Record, severities: dict[tuple[str, str], Risk]) -> Age:
    kind, saga = KINDS[row["what"]], row["saga"]
    severity = severities.get((row["service"], saga), Risk.MEDIUM) if saga else kind.severity
    return Age(
        what=kind.what,
        amount=row["amount"],
        seconds=max(0.0, row["seconds"]),
        service=row["service"] or "",
        saga=saga,
        severity=severity,
        first=row["first"],
        tenant=row["tenant"] or "",
        run="" if row["run"] is None else str(row["run"]),
        more=row["more"],
    )


def _merged(ages: Iterable[Age]) -> list[Age]:
    """Put together what two queries say of one kind and workflow."""
    found: dict[tuple[str, str, str], Age] = {}
    for age in ages:
        key = (age.what, age.service, age.saga)
        other = found.get(key)
        if other is None:
            found[key] = age
            continue
        older, younger = sorted((age, other), key=lambda one: one.seconds or 0.0, reverse=True)
        found[key] = Age(
            what=older.what,
            amount=older.amount + younger.amount,
            seconds=older.seconds,
            service=older.service,
            saga=older.saga,
            severity=older.severity,
            first=older.first,
            tenant=older.tenant,
            run=older.run,
            more=older.more or younger.more,
        )
    return list(found.values())


async def _outbox(connection: asyncpg.Connection[Any]) -> Age:
    state = await outbox_state(connection)
    if state.oldest_seconds is None:
        return Age("outbox", severity=KINDS["outbox"].severity)
    who = "no relay leads" if state.owner is None else f"relay epoch {state.epoch} leads"
    return Age(
        what="outbox",
        amount=state.lag,
        seconds=max(0.0, state.oldest_seconds),
        severity=KINDS["outbox"].severity,
        first=who,
    )
