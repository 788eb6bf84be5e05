"""Signals and waits meet exactly once, whoever comes first."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from milepost.inbox.signals import NewSignal, Stored, close_wait, match_wait, store_signals
from milepost.schemas.ids import SystemIds

IDS = SystemIds()
Pool = asyncpg.Pool


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[Pool]:
    async with asyncpg.create_pool(database_url, min_size=1, max_size=8) as pool:
        yield pool


def signal(key: str = "T-9", *, event_id: str | None = None, payload: str = "{}", **more: Any) -> NewSignal:
    identity = IDS.new()
    given = {"tenant": "", "source": "/carrier", "type": "carrier.delivered", **more}
    return NewSignal(id=identity, event_id=event_id or str(identity), key=key, payload=payload, **given)


async def send(pool: Pool, *signals: NewSignal) -> Stored:
    async with pool.acquire() as connection, connection.transaction():
        return await store_signals(connection, signals)


async def wait(
    pool: Pool, run: UUID, key: str = "T-9", *, tenant: str = "", generation: int = 1, broadcast: bool = False
) -> bool:
    async with pool.acquire() as connection, connection.transaction():
        return await match_wait(
            connection, run, tenant, "delivered", "", generation, "carrier.delivered", key, broadcast
        )


async def close(pool: Pool, run: UUID, generation: int = 1) -> bool:
    async with pool.acquire() as connection, connection.transaction():
        return await close_wait(connection, run, "delivered", "", generation)


async def matches(pool: Pool) -> dict[UUID, UUID]:
    """Return the signal of each matched wait, by run; both sides must agree where the wait was alone."""
    rows = await pool.fetch("SELECT run_id, signal_id FROM milepost.wait WHERE state = 'MATCHED'")
    return {row["run_id"]: row["signal_id"] for row in rows}


async def test_the_event_comes_first(pool: Pool) -> None:
    early, run = signal(), IDS.new()
    assert await send(pool, early) == Stored([], [])
    assert await wait(pool, run)
    assert await matches(pool) == {run: early.id}
    assert await pool.fetchval("SELECT run_id FROM milepost.signal") == run


async def test_the_wait_comes_first(pool: Pool) -> None:
    run, late = IDS.new(), signal()
    assert not await wait(pool, run)
    stored = await send(pool, late)
    assert [(found.run_id, found.step, found.generation) for found in stored.matched] == [
        (run, "delivered", 1)
    ]
    assert await matches(pool) == {run: late.id}


async def test_waits_are_satisfied_oldest_first_and_one_signal_each(pool: Pool) -> None:
    older, younger = IDS.new(), IDS.new()
    await wait(pool, IDS.new(), "other")
    await wait(pool, older)
    await wait(pool, younger)
    first, second, third = signal(), signal(), signal()
    assert [found.run_id for found in (await send(pool, first)).matched] == [older]
    assert [found.run_id for found in (await send(pool, second, third)).matched] == [younger]
    assert await pool.fetchval("SELECT id FROM milepost.signal WHERE matched_at IS NULL") == third.id


async def test_signals_that_came_first_are_taken_oldest_first(pool: Pool) -> None:
    first, second, runs = signal(), signal(), [IDS.new(), IDS.new()]
    await send(pool, first, second)
    assert [await wait(pool, run) for run in runs] == [True, True]
    assert await matches(pool) == {runs[0]: first.id, runs[1]: second.id}


async def test_one_batch_serves_several_waits_of_a_key_in_order(pool: Pool) -> None:
    runs, signals = [IDS.new() for _ in range(3)], [signal() for _ in range(3)]
    for run in runs:
        await wait(pool, run)
    await send(pool, *signals)
    assert await matches(pool) == {run: found.id for run, found in zip(runs, signals, strict=True)}


async def test_broadcast_waits_are_all_satisfied_by_one_signal(pool: Pool) -> None:
    alone, many, one = IDS.new(), [IDS.new() for _ in range(3)], signal()
    for run in many:
        await wait(pool, run, broadcast=True)
    await wait(pool, alone)
    stored = await send(pool, one)
    assert {found.run_id for found in stored.matched} == {alone, *many}
    assert set((await matches(pool)).values()) == {one.id}


async def test_a_duplicate_signal_changes_nothing(pool: Pool) -> None:
    run, again = IDS.new(), signal(event_id="e-1")
    await send(pool, signal(event_id="e-1"))
    await send(pool, again)
    assert await wait(pool, run)
    assert not await wait(pool, IDS.new()), "the copy is no second signal"
    assert await send(pool, signal(event_id="e-1")) == Stored([], [])


async def test_the_same_event_id_of_another_source_or_tenant_is_another_signal(pool: Pool) -> None:
    await send(
        pool,
        signal(event_id="e-1"),
        signal(event_id="e-1", source="/other"),
        signal(event_id="e-1", tenant="acme"),
    )
    assert await pool.fetchval("SELECT count(*) FROM milepost.signal") == 3


async def test_tenant_type_and_key_all_have_to_fit(pool: Pool) -> None:
    run = IDS.new()
    await wait(pool, run)
    others = [signal("T-8"), signal(tenant="acme"), signal(type="carrier.lost")]
    assert (await send(pool, *others)).matched == []
    assert await wait(pool, IDS.new(), tenant="acme")


async def test_an_expired_signal_is_ignored(pool: Pool) -> None:
    await send(pool, signal(keep=timedelta(microseconds=1)))
    assert not await wait(pool, IDS.new())


async def test_a_closed_wait_takes_no_signal_and_a_matched_one_cannot_be_closed(pool: Pool) -> None:
    closed, matched = IDS.new(), IDS.new()
    await wait(pool, closed)
    assert await close(pool, closed)
    assert not await close(pool, closed)
    assert (await send(pool, signal())).matched == []
    assert await wait(pool, matched)
    assert not await close(pool, matched)
    assert not await close(pool, IDS.new())


async def test_a_wait_that_is_armed_again_takes_the_next_signal(pool: Pool) -> None:
    run = IDS.new()
    await wait(pool, run)
    await close(pool, run)
    await wait(pool, run, generation=2)
    stored = await send(pool, signal())
    assert [found.generation for found in stored.matched] == [2]


async def test_payloads_keep_every_digit(pool: Pool) -> None:
    amounts = '{"a": 0.10, "b": 12345678901234567890.12345678901234567890, "c": 1e3, "d": "ü😀"}'
    await send(pool, signal(payload=amounts))
    stored = await pool.fetchval("SELECT payload::text FROM milepost.signal")
    assert "0.10" in stored and "12345678901234567890.12345678901234567890" in stored and "ü😀" in stored
    assert json.loads(stored)["c"] == 1000


@pytest.mark.parametrize(
    "bad",
    [
        signal(payload='{"x": "a\\u0000b"}'),
        signal(payload='{"x": "\\ud800"}'),
        signal(payload='{"x": 1e999999}'),
        signal(payload="{"),
        signal(payload='{"x": "\ud800"}'),
        signal(event_id="a\x00b"),
        signal("T\x00"),
        signal(tenant="\ud800"),
    ],
)
async def test_what_cannot_be_stored_is_refused_alone(pool: Pool, bad: NewSignal) -> None:
    run, good = IDS.new(), signal()
    await wait(pool, run)
    stored = await send(pool, signal("elsewhere"), bad, good)
    assert [refused.signal for refused in stored.refused] == [bad]
    assert stored.refused[0].reason
    assert await matches(pool) == {run: good.id}
    assert await pool.fetchval("SELECT count(*) FROM milepost.signal") == 2


async def test_the_two_sided_race_never_loses_a_match(pool: Pool) -> None:
    """Interleaving 6: both sides at once, in loops; with lock and look in one statement matches are lost."""
    for n in range(60):
        run, found, key = IDS.new(), signal(f"k-{n}"), f"k-{n}"
        sides: list[Any] = [send(pool, found), wait(pool, run, key)]
        if n % 2:
            sides.reverse()
        answers = await asyncio.wait_for(asyncio.gather(*sides), 10)
        stored, matched = reversed(answers) if n % 2 else answers
        assert bool(stored.matched) != matched, "exactly one side sees the match"
    assert len(await matches(pool)) == 60


async def test_many_waits_and_signals_of_few_keys_pair_off_without_deadlock(pool: Pool) -> None:
    keys = [f"k-{n}" for n in range(3)]
    runs = {key: [IDS.new() for _ in range(12)] for key in keys}
    waits = [wait(pool, run, key) for key in keys for run in runs[key]]
    sends = [send(pool, *(signal(key) for key in order)) for order in [keys, keys[::-1]] * 6]
    mixed = [side for pair in zip(waits[:12], sends, strict=True) for side in pair] + waits[12:]
    await asyncio.wait_for(asyncio.gather(*mixed), 30)
    assert len(await matches(pool)) == 36
    assert await pool.fetchval("SELECT count(*) FROM milepost.signal WHERE matched_at IS NULL") == 0


async def test_timeout_and_signal_at_once_have_one_winner(pool: Pool) -> None:
    for n in range(40):
        run, key = IDS.new(), f"k-{n}"
        await wait(pool, run, key)
        stored, closed = await asyncio.wait_for(asyncio.gather(send(pool, signal(key)), close(pool, run)), 10)
        assert bool(stored.matched) != closed
        unmatched = "SELECT count(*) FROM milepost.signal WHERE key = $1 AND matched_at IS NULL"
        assert await pool.fetchval(unmatched, key) == int(closed), (
            "a signal that nobody took stays for the next"
        )


async def test_a_signal_that_waits_for_the_lock_sees_what_was_committed_meanwhile(pool: Pool) -> None:
    run, found = IDS.new(), signal()
    async with pool.acquire() as first, first.transaction():
        await match_wait(first, run, "", "delivered", "", 1, "carrier.delivered", "T-9")
        sending = asyncio.create_task(send(pool, found))
        async with asyncio.timeout(10):
            while not await pool.fetchval(
                "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted "
                "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
            ):
                await asyncio.sleep(0.02)
    assert [match.run_id for match in (await sending).matched] == [run]
