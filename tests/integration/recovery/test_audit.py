"""The audit on a real database: it only grows, each entry gets a place, and who tampers as owner is found out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from milepost.console.record_findings import judge_unsealed
from milepost.consumers.ageing import Ageing
from milepost.recovery import audit
from milepost.recovery.auditing import AuditFilter, entries
from milepost.recovery.permissions import EVERYTHING, NOTHING, Actor, ActorKind, Scope
from milepost.recovery.sealing import Sealer, seal
from milepost.recovery.verifying import read_head, verify
from milepost.schemas.errors import UsageError
from milepost.schemas.ids import SystemClock, SystemIds
from milepost.streams.database import Database
from milepost.streams.lifecycle import Stop

from tests.support.console_calls import Call, milepost
from tests.support.engine import settings_for
from tests.support.waiting import until

__all__ = ["milepost"]
ANN = Actor("ann", ActorKind.PERSON, ())
IDS = SystemIds()


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    connection: asyncpg.Connection[Any] = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


async def write(connection: asyncpg.Connection[Any], amount: int, **more: Any) -> list[UUID]:
    entry = audit.Entry(**{"act": "run.retry", "reason": "mended", "after": {"run": "RUNNING"}} | more)
    return [await audit.write(connection, ANN, entry, IDS) for _ in range(amount)]


async def seal_all(connection: asyncpg.Connection[Any]) -> int:
    total = 0
    while done := await seal(connection, batch=3):
        total += done
    return total


async def broken(connection: asyncpg.Connection[Any]) -> tuple[str, int | None, UUID | None]:
    found = (await verify(connection)).broken
    assert found is not None
    return found.what, found.n, found.id


async def test_each_entry_gets_a_place_and_none_that_commits_late_is_passed_over(database_url: str) -> None:
    async with (
        connected(database_url) as one,
        connected(database_url) as late,
        connected(database_url) as other,
    ):
        first = await write(one, 4)
        slow = late.transaction()
        await slow.start()
        (held,) = await write(late, 1)
        second = await write(one, 3)
        found = await verify(one)
        assert (found.broken, found.entries, found.unsealed) == (None, 0, 7)
        assert sum(await asyncio.gather(seal(one, batch=100), seal(other, batch=100))) == 7
        assert (await verify(one)).entries == 7
        await slow.commit()
        found = await verify(one)
        assert (found.broken, found.entries, found.unsealed) == (None, 7, 1)
        assert found.oldest is not None and found.oldest > timedelta(0)
        assert await seal_all(one) == 1
        order = [row["id"] for row in await one.fetch("SELECT id FROM milepost.audit_chain ORDER BY n")]
        assert order == [*first, *second, held]
        rolled = late.transaction()
        await rolled.start()
        await write(late, 1)
        await rolled.rollback()
        assert await seal_all(one) == 0
        assert (await verify(one)).broken is None


async def test_many_writers_and_two_sealers_make_one_chain(database_url: str) -> None:
    database = Database(settings_for(database_url), max_size=8)
    await database.open()
    stop = Stop(SystemClock(), timedelta(seconds=5))
    try:
        sealers = [asyncio.create_task(Sealer(database.pool).run(stop)) for _ in range(2)]

        async def writer() -> None:
            async with connected(database_url) as own:
                await write(own, 50)

        await asyncio.gather(*(writer() for _ in range(4)))

        async def sealed() -> bool:
            return bool(await database.pool.fetchval("SELECT count(*) = 200 FROM milepost.audit_chain"))

        await until(sealed, within=20, what="all sealed")
        stop.ask()
        await asyncio.gather(*sealers)
        async with connected(database_url) as one:
            found = await verify(one)
            assert (found.broken, found.entries, found.unsealed) == (None, 200, 0)
    finally:
        await database.close()


TAMPERED: dict[str, tuple[str, str, int | None]] = {
    "reason changed": ("UPDATE milepost.audit SET reason = 'x' WHERE id = $1", "changed", 3),
    "actor changed": ("UPDATE milepost.audit SET actor = 'bob' WHERE id = $1", "changed", 3),
    "outcome changed": ("UPDATE milepost.audit SET outcome = 'REFUSED' WHERE id = $1", "changed", 3),
    "evidence changed": ("""UPDATE milepost.audit SET evidence = '{"a": 1}' WHERE id = $1""", "changed", 3),
    "time changed": ("UPDATE milepost.audit SET at = at - interval '1 second' WHERE id = $1", "removed", 3),
    "removed": ("DELETE FROM milepost.audit WHERE id = $1", "removed", 3),
    "link removed": ("DELETE FROM milepost.audit_chain WHERE id = $1", "chain", 3),
    "link changed": (
        "UPDATE milepost.audit_chain SET digest = sha256('x') WHERE id = $1",
        "chain",
        3,
    ),
}


async def test_who_tampers_as_the_owner_is_found_at_the_first_entry(database_url: str) -> None:
    async with connected(database_url) as owner:
        for way, (statement, what, n) in TAMPERED.items():
            await owner.execute("TRUNCATE milepost.audit, milepost.audit_chain, milepost.audit_unsealed")
            ids = await write(owner, 6)
            await seal_all(owner)
            assert (await verify(owner)).broken is None, way
            await owner.execute(statement, ids[2])
            await owner.execute("UPDATE milepost.audit SET reason = 'later' WHERE id = $1", ids[4])
            found = await broken(owner)
            assert found[:2] == (what, n), way
            assert way == "link removed" or found[2] == ids[2], way
            assert (await verify(owner)).entries == 2, way


async def test_what_is_put_in_reordered_or_taken_before_it_was_sealed_is_found(database_url: str) -> None:
    async with connected(database_url) as owner:
        ids = await write(owner, 5)
        await seal_all(owner)
        head = (await verify(owner)).head
        assert head is not None

        await owner.execute("ALTER TABLE milepost.audit DISABLE TRIGGER note_audit")
        (put,) = await write(owner, 1)
        await owner.execute("ALTER TABLE milepost.audit ENABLE TRIGGER note_audit")
        assert await broken(owner) == ("inserted", None, put)
        await owner.execute("DELETE FROM milepost.audit WHERE id = $1", put)

        (taken,) = await write(owner, 1)
        await owner.execute("DELETE FROM milepost.audit WHERE id = $1", taken)
        assert await seal_all(owner) == 0
        assert await broken(owner) == ("removed", None, taken)
        await owner.execute("DELETE FROM milepost.audit_unsealed")
        assert (await verify(owner)).broken is None

        # Two change places, with everything that their links say but the place.
        await owner.execute("UPDATE milepost.audit_chain SET n = n + 100 WHERE n IN (2, 3)")
        await owner.execute("UPDATE milepost.audit_chain SET n = 105 - n WHERE n > 100")
        assert (await broken(owner))[:2] == ("chain", 2)

        # A new chain over a cleaned audit is whole, but does not go through the head that was kept.
        await owner.execute("DELETE FROM milepost.audit WHERE id = $1", ids[1])
        await owner.execute("TRUNCATE milepost.audit_chain")
        await owner.execute("INSERT INTO milepost.audit_unsealed (at, id) SELECT at, id FROM milepost.audit")
        await seal_all(owner)
        assert (await verify(owner)).broken is None
        found = await verify(owner, head=read_head(head))
        assert found.broken is not None and found.broken.what == "chain"
        with pytest.raises(UsageError, match="MP665"):
            read_head("5:abc")


async def test_nobody_but_the_owner_can_change_the_audit(database_url: str) -> None:
    async with connected(database_url) as one:
        (entry,) = await write(one, 1)
        await seal_all(one)
        await one.execute("SET ROLE milepost_runtime")
        await write(one, 2)
        assert await seal(one) == 2
        for statement in (
            "UPDATE milepost.audit SET reason = 'x'",
            "DELETE FROM milepost.audit",
            "TRUNCATE milepost.audit",
            "UPDATE milepost.audit_chain SET digest = sha256('x')",
            "DELETE FROM milepost.audit_chain",
            "INSERT INTO milepost.audit_retired (lower_bound, upper_bound) VALUES (now(), now())",
            "ALTER TABLE milepost.audit DISABLE TRIGGER note_audit",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await one.execute(statement)
        # It can keep its own entry from being sealed; that is found, too.
        (hidden,) = await write(one, 1)
        await one.execute("DELETE FROM milepost.audit_unsealed WHERE id = $1", hidden)
        assert await broken(one) == ("inserted", None, hidden)
        assert entry != hidden


async def test_that_a_month_is_noted_as_gone_excuses_nobody_who_took_a_part_of_it(database_url: str) -> None:
    async with connected(database_url) as owner:
        ids = await write(owner, 5)
        await seal_all(owner)
        (lost,) = await write(owner, 1)
        removed = "DELETE FROM milepost.audit WHERE id = $1 RETURNING at"
        noted = "INSERT INTO milepost.audit_retired (lower_bound, upper_bound) VALUES ($1, $2)"
        await owner.execute("SET session_replication_role = replica")
        at = await owner.fetchval(removed, ids[2])
        await owner.execute(noted, at, at + timedelta(microseconds=1))
        assert await broken(owner) == ("removed", 3, ids[2])
        month = await owner.fetchrow("SELECT * FROM milepost.partition_of('audit', $1)", at)
        assert month is not None
        await owner.execute(noted, month["lower_bound"], month["upper_bound"])
        assert await broken(owner) == ("removed", 3, ids[2])
        await owner.execute("DELETE FROM milepost.audit_chain")
        await owner.execute(
            "INSERT INTO milepost.audit_unsealed SELECT at, id FROM milepost.audit WHERE id <> $1", lost
        )
        await owner.execute(removed, lost)
        assert (await broken(owner))[2] == lost


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
async def test_a_page_of_the_audit_reads_a_page_however_much_there_is(database_url: str, mode: str) -> None:
    async with connected(database_url) as one:
        await one.execute("SET session_replication_role = replica")
        await one.execute(
            "INSERT INTO milepost.audit (id, at, tenant, actor, act, reason)"
            " SELECT gen_random_uuid(), now() + n * interval '1 ms', 'acme', 'ann', 'run.retry', 'r'"
            " FROM generate_series(1, 30000) AS n"
        )
        await one.execute("ANALYZE milepost.audit")
        await one.execute(f"SET plan_cache_mode = {mode}")
        query = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + audit.Sql.entries
        found = json.loads(await one.fetchval(query, *[None] * 12, 51))[0]["Plan"]
        read = found["Shared Hit Blocks"] + found["Shared Read Blocks"]
        assert read < 250, f"{read} pages for 51 entries"


async def old_month(connection: asyncpg.Connection[Any], amount: int, months: int) -> None:
    """Write entries of a month that has passed, in a partition of its own."""
    await connection.execute(
        f"""
        DO $$
        DECLARE part record;
        BEGIN
            SELECT * INTO part FROM milepost.partition_of('audit', now() - interval '{months} months');
            EXECUTE format('CREATE TABLE milepost.%I PARTITION OF milepost.audit FOR VALUES FROM (%L) TO (%L)',
                           part.name, part.lower_bound, part.upper_bound);
            INSERT INTO milepost.audit (id, at, actor, act, reason)
            SELECT gen_random_uuid(), part.lower_bound + make_interval(mins => n), 'ann', 'old', 'r'
            FROM generate_series(1, {amount}) AS n;
        END $$
        """
    )


async def test_months_that_go_by_their_age_leave_a_chain_that_is_whole(database_url: str) -> None:
    settings = settings_for(
        database_url, keep_audit="100d", keep_history="100d", keep_runs="30d", keep_requests="30d"
    )
    database = Database(settings)
    await database.open()
    stop = Stop(SystemClock(), timedelta(seconds=5))
    try:
        async with connected(database_url) as one:
            await old_month(one, 7, 9)
            await seal_all(one)
            await old_month(one, 4, 8)
            await write(one, 3)
            await seal_all(one)
            head = (await verify(one)).head
            await Ageing(database, clock=SystemClock())._tidy(one, stop)
            found = await verify(one)
            assert (found.broken, found.entries, found.head) == (None, 3, head)
            rows = await one.fetchval("SELECT min(n) FROM milepost.audit_chain")
            assert rows == 12, "links of what is gone are gone, and the chain goes on from the last of them"
            await write(one, 1)
            await seal_all(one)
            found = await verify(one, head=read_head(head or ""))
            assert (found.broken, found.entries, found.gone) == (None, 4, 0)
            await one.execute("DELETE FROM milepost.audit_chain WHERE n = 12")
            assert (await broken(one))[:2] == ("chain", 12)
    finally:
        await database.close()


async def found_by(connection: asyncpg.Connection[Any], scope: Scope = EVERYTHING, **more: Any) -> list[str]:
    return [one.reason for one in await entries(connection, scope, AuditFilter(**more))]


async def test_entries_are_found_by_what_they_say(database_url: str) -> None:
    async with connected(database_url) as one:
        await write(one, 1, reason="a", act="run.retry")
        await write(one, 1, reason="b", act="letter.redrive", outcome="REFUSED", tenant="t")
        await write(one, 1, reason="c", act="runner")
        assert await found_by(one) == ["c", "b", "a"]
        assert await found_by(one, act="run") == ["a"]
        assert await found_by(one, outcome="REFUSED", actor="ANN") == ["b"]
        assert await found_by(one, since=timedelta(0)) == []
        assert await found_by(one, Scope(frozenset({"t"}))) == ["b"]
        assert await found_by(one, Scope(None, frozenset({"order"}))) == await found_by(one, NOTHING) == []
        first = (await entries(one, EVERYTHING, AuditFilter(), limit=1))[0]
        assert await found_by(one, before=(first.at, first.id)) == ["b", "a"]


def test_doctor_tells_when_nobody_seals() -> None:
    assert judge_unsealed(0, None).severity == judge_unsealed(3, timedelta(minutes=4)).severity == "ok"
    found = judge_unsealed(3, timedelta(minutes=6))
    assert (found.severity, found.code) == ("warning", "MP675") and "role upkeep" in found.fix


def test_the_command_line_lists_and_verifies(database_url: str, milepost: Call) -> None:
    async def prepare() -> list[UUID]:
        async with connected(database_url) as one:
            ids = await write(one, 3)
            await seal_all(one)
            await write(
                one,
                1,
                reason="not \x1b[31mred",
                act="letter.ignore",
                outcome="REFUSED",
                evidence={"refused": "no"},
            )
            return ids

    async def tamper(entry: UUID) -> None:
        async with connected(database_url) as one:
            await one.execute("UPDATE milepost.audit SET actor = 'bob' WHERE id = $1", entry)

    ids = asyncio.run(prepare())
    status, out, _ = milepost("audit", "verify")
    assert status == 0 and out.startswith("chain ok, 3 entries; 1 not sealed yet (the oldest for ")
    head = out.splitlines()[1].removeprefix("head ")
    assert milepost("audit", "verify", "--head", head)[0] == 0
    status, out, _ = milepost("audit", "list", "--outcome", "refused", "--since", "1h")
    assert status == 0 and "letter.ignore" in out and "REFUSED" in out and "\x1b" not in out
    status, out, _ = milepost("--json", "audit", "list", "--actor", "ann", "--kind", "person", "--act", "run")
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["place"] for line in lines] == [3, 2, 1] and lines[0]["after"] == {"run": "RUNNING"}
    assert milepost("audit", "list", "--outcome", "maybe")[0] == 2
    asyncio.run(tamper(ids[1]))
    status, out, _ = milepost("audit", "verify")
    assert status == 1 and out.startswith(f"chain broken: entry {ids[1]}, sealed as 2, says something else")
    status, out, _ = milepost("--json", "audit", "verify")
    verdict = json.loads(out)
    assert (status, verdict["ok"], verdict["broken"]["what"], verdict["broken"]["n"]) == (
        1,
        False,
        "changed",
        2,
    )
