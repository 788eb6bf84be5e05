"""What is remembered no longer than settings say, by kind."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import asyncpg
from milepost.consumers.retention import MARGIN

from tests.support.inbox import (
    IDS,
)
from tests.support.retained import days, retention, stop
from tests.support.retained_rows import INBOX, LETTER, POSITION, connection

__all__ = ["connection"]


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
