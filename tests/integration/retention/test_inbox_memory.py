"""What the inbox has forgotten is never applied twice."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta

from milepost.consumers.retention import Retention
from milepost.inbox.intake import Intake
from milepost.schemas.ids import SystemClock
from milepost.streams.database import Database

from tests.support.inbox import (
    Effects,
    consumer_of,
    intake_of,
    nothing_published,
    opened,
    record,
)
from tests.support.retained import NO_PAUSE, days, retention, settings, stop


async def test_a_redelivery_at_the_moment_of_the_purge_applies_nothing_twice(database_url: str) -> None:
    """Scenario 26: whichever of the two comes first, at every point of the row's life."""
    keep = timedelta(days=7)
    async with opened(database_url, keep_inbox=keep) as database:
        effects = Effects(database.pool)
        intake = intake_of(consumer_of("c", "t", effects.apply), database)
        now = int(SystemClock().now().timestamp() * 1000)
        hour = 3_600_000
        week = 7 * 24 * hour
        # Sent between nearly nine days and two hours less than a week ago; applied when sent.
        sent = [now - week - 46 * hour + n * hour for n in range(49)]
        events = [record(n, at_ms=at) for n, at in enumerate(sent)]
        remembering = intake_of(consumer_of("c", "t", effects.apply), database)
        remembering._memory._database = Database(settings(database_url, keep_inbox=timedelta(days=99)))
        remembering._memory._purged_below, remembering._memory._looked = None, SystemClock().monotonic()
        await remembering.handle(events)
        assert len(await effects.orders()) == 49
        await database.pool.execute(
            "UPDATE milepost.inbox SET at = to_timestamp(given.ms / 1000.0) FROM unnest($1::bigint[])"
            ' WITH ORDINALITY AS given (ms, n) WHERE "offset" = given.n - 1',
            sent,
        )
        done = asyncio.Event()

        async def redeliver() -> None:
            while not done.is_set():
                with suppress(
                    LookupError
                ):  # a row went while it was looked at: its reader gives the batch again
                    await intake.handle(events)

        redelivering = asyncio.create_task(redeliver())
        for _ in range(5):
            await Retention(database, every=NO_PAUSE).tidy(stop())
        done.set()
        await redelivering
        await intake.handle(events)
        assert sorted(await effects.orders()) == sorted(f"o-{n}" for n in range(49))
        codes = await effects.rows("SELECT DISTINCT code FROM milepost.dead_letter")
        assert [row["code"] for row in codes] in ([], ["TOO_OLD"])


async def test_a_longer_memory_does_not_bring_back_what_was_forgotten(database_url: str) -> None:
    """Retention is lengthened after rows were purged: those stay too old."""
    ago = SystemClock().now() - timedelta(days=10)
    event = record(0, at_ms=int(ago.timestamp() * 1000))
    async with opened(database_url, keep_inbox=timedelta(days=30)) as database:
        effects = Effects(database.pool)
        await intake_of(consumer_of("c", "t", effects.apply), database).handle([event])
        await database.pool.execute("UPDATE milepost.inbox SET at = $1", ago)
        await retention(database_url, keep_inbox=timedelta(days=7)).tidy(stop())
        assert await effects.value("SELECT count(*) FROM milepost.inbox") == 0
        await intake_of(consumer_of("c", "t", effects.apply), database).handle([event])
        assert await effects.orders() == ["o-0"]
        assert await effects.value("SELECT code FROM milepost.dead_letter") == "TOO_OLD"


async def test_on_a_topic_that_keeps_all_what_was_read_counts_as_applied(database_url: str) -> None:
    """Compacted and unlimited topics: no letters for old events, neither known nor new ones."""
    old = int((SystemClock().now() - timedelta(days=400)).timestamp() * 1000)
    async with opened(database_url) as database:
        effects = Effects(database.pool)

        def intake() -> Intake:
            consumer = consumer_of("c", "t", effects.apply)
            return Intake(consumer, database, nothing_published, clock=SystemClock(), unlimited=["t"])

        await intake().handle([record(n, at_ms=old) for n in range(3)])
        assert await effects.orders() == ["o-0", "o-1", "o-2"], "a new consumer reads all of it"
        await database.pool.execute("DELETE FROM milepost.inbox")
        again = intake()
        assert await again.positions([("t", 0)]) == {("t", 0): 3}
        await again.handle([record(n, at_ms=old) for n in range(2)])
        await intake().handle([record(n, at_ms=old) for n in range(5)])
        assert await effects.orders() == ["o-0", "o-1", "o-2", "o-3", "o-4"]
        assert await effects.value("SELECT count(*) FROM milepost.dead_letter") == 0


async def test_a_shorter_memory_of_another_process_purges_only_what_everybody_knows_to_be_old(
    database_url: str,
) -> None:
    """Two services, or two versions of one, share a database; who remembers longer looks once a minute."""
    now_ms = SystemClock().now().timestamp() * 1000
    event = record(0, at_ms=int(now_ms - days(2).total_seconds() * 1000))
    async with opened(database_url, keep_inbox=days(30)) as database:
        effects = Effects(database.pool)
        long = intake_of(consumer_of("books", "t", effects.apply), database)
        await retention(database_url, keep_inbox=days(30)).tidy(stop())
        await long.handle([event])
        await database.pool.execute("UPDATE milepost.inbox SET at = at - interval '2 days'")
        short = retention(database_url, keep_inbox=days(1))
        await short.tidy(stop())
        await long.handle([event])
        assert await effects.orders() == ["o-0"], "an effect twice"
        # An hour later, by which everybody has looked.
        long._memory._looked = None
        await short.tidy(stop())
        assert await effects.value("SELECT count(*) FROM milepost.inbox") == 0
        await long.handle([event])
        assert await effects.orders() == ["o-0"]
        assert await effects.value("SELECT code FROM milepost.dead_letter") == "TOO_OLD"
