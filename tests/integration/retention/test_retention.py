"""What is remembered no longer than settings say, by kind, beside people who write."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import asyncpg
import pytest
from milepost.consumers.retention import MARGIN, Retention
from milepost.inbox.intake import Intake
from milepost.schemas.ids import SystemClock
from milepost.schemas.settings import Settings
from milepost.streams.database import Database
from milepost.streams.lifecycle import Stop

from tests.support.inbox import (
    IDS,
    Effects,
    consumer_of,
    intake_of,
    nothing_published,
    opened,
    record,
)
from tests.support.outbox import connected
from tests.support.waiting import until

NO_PAUSE = timedelta(0)
INBOX = (
    'INSERT INTO milepost.inbox (consumer, event_id, fingerprint, outcome, topic, partition, "offset", at)'
    " SELECT $1, gen_random_uuid(), '\\x00', $2, 't', 0, n, clock_timestamp() - $3::interval"
    " FROM generate_series(1, $4::int) AS n"
)
POSITION = (
    "INSERT INTO milepost.consumer_position (consumer, topic, partition, next_offset) VALUES ($1, 't', 0, $2)"
)
LETTER = (
    "INSERT INTO milepost.dead_letter (id, scope, event_id, topic, headers, stage, code, message, attempts,"
    " first_failed_at, last_failed_at, recoverable, status, resolved_at, resolved_by)"
    " SELECT gen_random_uuid(), 'consumer:c', $1, 't', '\\x', 'HANDLE', 'HANDLER_FAILED', '', 1, f.at, f.at, true, $2,"
    " CASE WHEN $2 IN ('RESOLVED', 'IGNORED') THEN f.at END, CASE WHEN $2 IN ('RESOLVED', 'IGNORED') THEN 'x' END"
    " FROM (SELECT clock_timestamp() - $3::interval AS at) AS f"
)


def settings(url: str, **more: Any) -> Settings:
    given: dict[str, Any] = {"database_url": url, **more}
    return Settings(**given)


def retention(url: str, *, every: timedelta = NO_PAUSE, **more: Any) -> Retention:
    return Retention(Database(settings(url, **more)), every=every)


def stop() -> Stop:
    return Stop(SystemClock(), timedelta(seconds=5))


def days(n: float) -> timedelta:
    return timedelta(days=n)


@pytest.fixture
async def connection(database_url: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    async with connected(database_url) as (found,):
        yield found


async def test_the_inbox_forgets_what_is_old_and_no_open_letter(
    database_url: str, connection: asyncpg.Connection[Any]
) -> None:
    await connection.execute(POSITION, "c", 5_000)
    await connection.execute(INBOX, "c", "APPLIED", days(31), 2_000)
    await connection.execute(INBOX, "c", "APPLIED", days(30), 7)
    await connection.execute(INBOX, "c", "APPLIED", days(1), 1_000)
    await connection.execute(INBOX, "nobody-knows-how-far", "APPLIED", days(99), 5)
    await connection.execute(INBOX, "c", "PARKED", days(99), 3)
    parked = await connection.fetch("SELECT event_id FROM milepost.inbox WHERE outcome = 'PARKED'")
    for row, status in zip(parked, ("OPEN", "RETRY_PENDING", "IGNORED"), strict=True):
        if status != "RETRY_PENDING":
            await connection.execute(LETTER, row["event_id"], status, days(40))
        else:
            await connection.execute(LETTER, row["event_id"], "OPEN", days(40))
            await connection.execute(
                "UPDATE milepost.dead_letter SET status = 'RETRY_PENDING', asked_at = now(), asked_by = 'x'"
                " WHERE event_id = $1",
                row["event_id"],
            )
    await retention(database_url, keep_inbox=days(30)).tidy(stop())
    left = await connection.fetch(
        "SELECT consumer, outcome, count(*) AS n FROM milepost.inbox GROUP BY 1, 2 ORDER BY 1, 2"
    )
    assert [tuple(row) for row in left] == [
        ("c", "APPLIED", 1_000 + 7),
        ("c", "PARKED", 2),
        ("nobody-knows-how-far", "APPLIED", 5),
    ], "rows outlast what intakes take for old by an hour, which clocks may differ by"
    bound = await connection.fetchval(
        "SELECT clock_timestamp() - purged_below FROM milepost.retention WHERE kind = 'inbox'"
    )
    assert timedelta(0) <= bound - days(30) - MARGIN < timedelta(minutes=2)


async def test_letters_go_when_they_were_closed_long_ago(
    database_url: str, connection: asyncpg.Connection[Any]
) -> None:
    for status in ("OPEN", "RESOLVED", "IGNORED"):
        for age in (10, 200):
            await connection.execute(LETTER, IDS.new(), status, days(age))
    await connection.execute(
        "INSERT INTO milepost.letter_failure (letter_id, attempts, at, code, message)"
        " SELECT id, 1, now(), 'X', '' FROM milepost.dead_letter"
    )
    await retention(database_url, keep_letters=days(90)).tidy(stop())
    left = await connection.fetch(
        "SELECT status, count(*) AS n, min(clock_timestamp() - last_failed_at) > '100 days' AS old,"
        " count(f.letter_id) AS failures FROM milepost.dead_letter LEFT JOIN milepost.letter_failure AS f"
        " ON f.letter_id = id GROUP BY 1 ORDER BY 1"
    )
    assert [(row["status"], row["n"], row["failures"]) for row in left] == [
        ("IGNORED", 1, 1),
        ("OPEN", 2, 2),
        ("RESOLVED", 1, 1),
    ]
    assert await connection.fetchval("SELECT count(*) FROM milepost.letter_failure") == 4


async def test_signals_go_when_matched_or_expired_long_ago_and_their_run_has_ended(
    database_url: str, connection: asyncpg.Connection[Any]
) -> None:
    live, ended = IDS.new(), IDS.new()
    await connection.execute(
        "INSERT INTO milepost.run (id, service, saga, key, definition, shape, policy, input, state, wake_at,"
        " finished_at, correlation_id) SELECT id, 's', 'g', id::text, 1, '', '', '{}', CASE WHEN live THEN 'WAITING'"
        " ELSE 'SUCCEEDED' END, CASE WHEN live THEN now() END, CASE WHEN NOT live THEN now() END, ''"
        " FROM (VALUES ($1::uuid, true), ($2::uuid, false)) AS given (id, live)",
        live,
        ended,
    )
    rows = [
        ("fresh", 1, None),
        ("expired", 40, None),
        ("used", 40, ended),
        ("awaited", 40, live),
        ("new", -5, ended),
    ]
    for name, age, run in rows:
        await connection.execute(
            "INSERT INTO milepost.signal (id, source, event_id, type, key, payload, expires_at, run_id, matched_at)"
            " SELECT gen_random_uuid(), '/t', $1, 't', 'k', '{}', clock_timestamp() - $2::interval, $3::uuid,"
            " CASE WHEN $3::uuid IS NOT NULL THEN clock_timestamp() - $2::interval END",
            name,
            days(age),
            run,
        )
    await retention(database_url, keep_signals=days(30)).tidy(stop())
    left = await connection.fetch("SELECT event_id FROM milepost.signal ORDER BY event_id")
    assert [row["event_id"] for row in left] == ["awaited", "fresh", "new"]


async def test_operations_go_by_their_own_time_and_webhooks_by_the_settings(
    database_url: str, connection: asyncpg.Connection[Any]
) -> None:
    for key, state, expires, wakes in (
        ("api", "SUCCEEDED", 0.1, False),
        ("export", "SUCCEEDED", -3, False),
        ("refused", "FAILED_FINAL", 2, False),
        ("running", "RUNNING", 9, True),
        ("in-doubt", "UNKNOWN", None, True),
    ):
        await connection.execute(
            "INSERT INTO milepost.operation (kind, key, id, service, fingerprint, repeat, state, code, expires_at,"
            " wake_at, doubt_at) SELECT 'k', $1, gen_random_uuid(), 's', '\\x', 'safe', $2, 'X',"
            " clock_timestamp() - $3::interval, CASE WHEN $4 THEN now() END,"
            " CASE WHEN $4 THEN now() END",
            key,
            state,
            None if expires is None else days(expires),
            wakes,
        )
    for name, state, age in (
        ("done", "PROCESSED", 100),
        ("young", "PROCESSED", 80),
        ("failed", "FAILED", 200),
        ("ignored", "IGNORED", 91),
    ):
        await connection.execute(
            "INSERT INTO milepost.webhook (id, service, provider, event_id, path, headers, body, fingerprint, state,"
            " received_at, finished_at) SELECT gen_random_uuid(), 's', 'p', $1, '/', '{}', '\\x', '\\x', $2, f.at, f.at"
            " FROM (SELECT clock_timestamp() - $3::interval AS at) AS f",
            name,
            state,
            days(age),
        )
    await retention(database_url).tidy(stop())
    kept = await connection.fetch("SELECT key FROM milepost.operation ORDER BY key")
    assert [row["key"] for row in kept] == ["export", "in-doubt", "running"]
    webhooks = await connection.fetch("SELECT event_id FROM milepost.webhook ORDER BY event_id")
    assert [row["event_id"] for row in webhooks] == ["failed", "young"], "a failed one waits for a person"


async def test_replays_go_when_nobody_has_gone_on_with_them(
    database_url: str, connection: asyncpg.Connection[Any]
) -> None:
    for age in (6, 8):
        await connection.execute(
            "INSERT INTO milepost.replay (id, consumer, topic, apply, begins, ends, live, floor, nexts, at)"
            " VALUES (gen_random_uuid(), 'c', 't', false, '{}', '{}', '{}', now(), '{}', now() - $1::interval)",
            days(age),
        )
    await retention(database_url, keep_replays=days(7)).tidy(stop())
    assert await connection.fetchval("SELECT count(*) FROM milepost.replay") == 1


async def test_it_needs_no_more_rights_than_other_roles(
    database_url: str, connection: asyncpg.Connection[Any]
) -> None:
    name = f"milepost_test_{secrets.token_hex(6)}"
    await connection.execute(f"CREATE ROLE {name} LOGIN IN ROLE milepost_runtime")
    try:
        await connection.execute(POSITION, "c", 5_000)
        await connection.execute(INBOX, "c", "APPLIED", days(99), 10)
        await retention(f"postgresql://{name}@{database_url.rpartition('@')[2]}").tidy(stop())
        assert await connection.fetchval("SELECT count(*) FROM milepost.inbox") == 0
    finally:
        await connection.execute(f"DROP ROLE {name}")


async def test_of_several_processes_one_walks_each_hour(
    database_url: str, connection: asyncpg.Connection[Any]
) -> None:
    await connection.execute(POSITION, "c", 50_000)
    await connection.execute(INBOX, "c", "APPLIED", days(99), 20_000)
    several = [retention(database_url, every=timedelta(hours=1)) for _ in range(3)]
    await asyncio.gather(*(one.tidy(stop()) for one in several))
    assert sorted(one.removed.get("inbox", 0) for one in several) == [0, 0, 20_000]
    await connection.execute(INBOX, "c", "APPLIED", days(99), 10)
    await several[0].tidy(stop())
    assert await connection.fetchval("SELECT count(*) FROM milepost.inbox") == 10, "not so soon"
    # At the same instant, without the schedule: each row goes once, and nobody waits for ever.
    await connection.execute(INBOX, "c", "APPLIED", days(99), 20_000)
    both = [retention(database_url) for _ in range(2)]
    await asyncio.gather(*(one.tidy(stop()) for one in both))
    assert sum(one.removed.get("inbox", 0) for one in both) == 20_010


async def test_writers_never_wait_for_a_long_purge(
    database_url: str, connection: asyncpg.Connection[Any]
) -> None:
    """Interleaving 11, of rows: inserts and updates beside a purge that does all it has to, under a short timeout."""
    await connection.execute(POSITION, "c", 500_000)
    await connection.execute(INBOX, "c", "APPLIED", days(99), 60_000)
    await connection.execute(INBOX, "c", "APPLIED", days(1), 2_000)
    one, over = retention(database_url), asyncio.Event()
    worst, writes = 0.0, 0

    async def write() -> None:
        nonlocal worst, writes
        clock = SystemClock()
        async with connected(database_url) as (writer,):
            await writer.execute("SET lock_timeout = '500ms'")
            while not over.is_set():
                began = clock.monotonic()
                async with writer.transaction():
                    await writer.execute(INBOX, "w", "APPLIED", days(0), 20)
                    await writer.execute(
                        "UPDATE milepost.inbox SET outcome = outcome WHERE consumer = 'c' AND at > now() - interval"
                        " '2 days' AND \"offset\" = 7"
                    )
                    await writer.execute(
                        "INSERT INTO milepost.consumer_position AS p (consumer, topic, partition, next_offset)"
                        " VALUES ('w', 't', 0, 1) ON CONFLICT (consumer, topic, partition)"
                        " DO UPDATE SET next_offset = p.next_offset + 1"
                    )
                worst, writes = max(worst, clock.monotonic() - began), writes + 1

    writing = asyncio.create_task(write())
    await until(lambda: writes > 3)
    await one.tidy(stop())
    during = writes
    over.set()
    await writing
    assert one.removed["inbox"] == 60_000 and during > 20
    assert worst < 2.0, f"a write took {worst:.2f} s"


async def test_a_row_that_somebody_holds_is_left_for_the_next_walk(
    database_url: str, connection: asyncpg.Connection[Any]
) -> None:
    await connection.execute(POSITION, "c", 500_000)
    await connection.execute(INBOX, "c", "APPLIED", days(99), 30_000)
    async with connected(database_url) as (other,):
        transaction = other.transaction()
        await transaction.start()
        await other.execute('SELECT FROM milepost.inbox WHERE "offset" = 3 FOR UPDATE')
        await retention(database_url).tidy(stop())
        left = await connection.fetchval("SELECT count(*) FROM milepost.inbox")
        assert 1 <= left < 10_000, "the others of its stretch only"
        await transaction.rollback()
    await retention(database_url).tidy(stop())
    assert await connection.fetchval("SELECT count(*) FROM milepost.inbox") == 0


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
