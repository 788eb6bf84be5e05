"""Rows that were put aside go on when somebody asks for it, each key in its order, and only the relay sends them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from milepost.console import main
from milepost.outbox.lease import LeaseLost
from milepost.outbox.log import PositionLog
from milepost.outbox.parking import Parking
from milepost.outbox.unpark import ask_relay, ignore_parked
from milepost.schemas.errors import StateError, UsageError
from milepost.schemas.packing import unpack_headers

from tests.support.outbox import (
    IDS,
    Noted,
    alter_topic,
    arrived,
    connected,
    make_topic,
    make_topics,
    publish_noted,
    relaying,
    until_arrived,
    until_sent,
)
from tests.support.waiting import until

LARGE = "x" * 30_000
BY: dict[str, Any] = {"by": "ann", "reason": "limit raised", "ids": IDS}


@dataclass
class Held:
    """A topic on which a key's first row was too large.

    Attributes:
        large: The row that was put aside.
        behind: Two later rows of its key.
        others: Rows of another key.
    """

    connection: asyncpg.Connection[Any]
    kafka: str
    topic: str
    key: str
    large: UUID
    behind: list[UUID]
    others: list[UUID]

    async def of_key(self, *ids: UUID) -> list[UUID]:
        """Wait until so many rows have come; returns those of the key in their order."""
        found = await until_arrived(self.kafka, self.topic, [*self.others, *ids])
        assert len(found.ids()) == len(set(found.ids())), "each once"
        return found.order().get(self.key.encode(), [])

    async def letter(self, event: UUID) -> asyncpg.Record:
        """Return the letter of a row."""
        found: asyncpg.Record | None = await self.connection.fetchrow(
            "SELECT * FROM milepost.dead_letter WHERE id = $1", event
        )
        assert found is not None
        return found

    async def until_status(self, event: UUID, status: str) -> asyncpg.Record:
        """Wait until a row's letter has a status."""

        async def so_far() -> asyncpg.Record | None:
            found = await self.letter(event)
            return found if found["status"] == status else None

        found: asyncpg.Record = await until(so_far, within=20, what=f"the letter to be {status}")
        return found


@asynccontextmanager
async def held(
    url: str, kafka: str, topic: str, *, policy: str = "hold", key: str = "k0"
) -> AsyncIterator[Held]:
    """Run a relay that has put a row aside, and with it its key where the policy says so."""
    await make_topic(kafka, topic, max_message_bytes="20000")
    async with (
        connected(url) as (connection,),
        relaying(url, kafka, hold_topics=topic if policy == "hold" else ""),
    ):
        (large,) = await publish_noted(connection, topic, [Noted(key=key, text=LARGE)])
        behind = await publish_noted(connection, topic, [Noted(key=key, n=n) for n in range(2)])
        others = await publish_noted(connection, topic, [Noted(key="other", n=n) for n in range(3)])
        await until_sent(connection)
        yield Held(connection, kafka, topic, key, large, behind, others)


@pytest.mark.parametrize("key", ["k0", "long" * 1000])
async def test_a_held_key_goes_on_in_its_order(
    database_url: str, kafka: str, topic_prefix: str, key: str
) -> None:
    async with held(database_url, kafka, f"{topic_prefix}.held", key=key) as it:
        assert await it.of_key() == [], "nothing of the key has passed the row that was put aside"
        with pytest.raises(StateError, match=r"MP421 .*behind letter"):
            await ask_relay(it.connection, it.behind[0], **BY)
        assert (await ask_relay(it.connection, it.large, **BY)).outcome == "ASKED"
        assert (await ask_relay(it.connection, it.large, **BY)).outcome == "NOOP"
        await until(
            lambda: it.connection.fetchval(
                "SELECT status = 'OPEN' AND attempts = 2 FROM milepost.dead_letter WHERE id = $1", it.large
            ),
            what="it to be refused again",
        )
        assert await it.of_key() == []
        await alter_topic(kafka, it.topic, max_message_bytes="900000")
        await ask_relay(it.connection, it.large, **BY)
        later = await publish_noted(it.connection, it.topic, [Noted(key=key, n=9)])
        await it.until_status(it.behind[1], "RESOLVED")
        await until(
            lambda: it.connection.fetchval("SELECT NOT EXISTS (SELECT FROM milepost.hold)"),
            what="the hold to go",
        )
        later += await publish_noted(it.connection, it.topic, [Noted(key=key, n=10)])
        assert await it.of_key(*later) == [it.large, *it.behind, *later]
        assert (await ask_relay(it.connection, it.large, **BY)).text == "has been sent."
        audit = await it.connection.fetch("SELECT * FROM milepost.audit ORDER BY id")
        assert [(row["actor"], row["act"], row["reason"]) for row in audit] == [
            ("ann", "outbox.unpark", "limit raised")
        ] * 2
        assert await it.connection.fetchval("SELECT count(*) FROM milepost.letter_failure") == 1


async def test_a_key_goes_on_without_what_is_ignored(
    database_url: str, kafka: str, topic_prefix: str
) -> None:
    async with held(database_url, kafka, f"{topic_prefix}.ignored") as it:
        assert (await ignore_parked(it.connection, it.large, **BY)).outcome == "IGNORED"
        assert await it.of_key(*it.behind) == it.behind
        assert (await it.until_status(it.large, "IGNORED"))["resolved_by"] == "ann"
        assert (await ask_relay(it.connection, it.large, **BY)).outcome == "NOOP"


async def test_elsewhere_the_key_went_on_and_the_row_follows(
    database_url: str, kafka: str, topic_prefix: str
) -> None:
    async with held(database_url, kafka, f"{topic_prefix}.passed", policy="continue") as it:
        assert await it.of_key(*it.behind) == it.behind
        await alter_topic(kafka, it.topic, max_message_bytes="900000")
        await ask_relay(it.connection, it.large, **BY)
        assert await it.of_key(it.large) == [*it.behind, it.large]
        assert (await it.until_status(it.large, "RESOLVED"))["resolved_by"] == "relay"
        found = (await arrived(kafka, it.topic)).all()
        (record,) = [record for record in found if len(record.value) > 20_000]
        stored = await it.connection.fetchrow("SELECT * FROM milepost.outbox WHERE id = $1", it.large)
        assert stored is not None
        assert record.value == stored["payload"]
        assert {name: value.decode() for name, value in record.headers} == json.loads(stored["headers"])
        letter = await it.letter(it.large)
        assert unpack_headers(letter["headers"]) == list(record.headers)


async def test_letters_of_the_first_release_are_read(
    database_url: str, kafka: str, topic_prefix: str
) -> None:
    topic = f"{topic_prefix}.old"
    async with connected(database_url) as (connection,), relaying(database_url, kafka):
        ids = await publish_noted(
            connection, topic, [Noted(key="k", n=n) for n in range(3)], headers={"x": "ü"}
        )
        await until_sent(connection)
        await connection.execute(
            "UPDATE milepost.dead_letter AS l SET headers = convert_to(o.headers::text, 'UTF8')"
            " FROM milepost.outbox AS o WHERE o.id = l.id"
        )
        await make_topics(kafka, topic)
        found = await until_arrived(kafka, topic, ids)
        assert found.ids() == ids
        stored = await connection.fetch("SELECT headers FROM milepost.outbox ORDER BY seq")
        assert [{name: value.decode() for name, value in record.headers} for record in found.all()] == [
            json.loads(row["headers"]) for row in stored
        ]


async def test_a_former_leader_settles_nothing(database_url: str) -> None:
    async with connected(database_url) as (connection,):
        await connection.execute(
            "INSERT INTO milepost.outbox_lease (outbox, epoch, expires_at) VALUES ('outbox', 2, 'infinity')"
        )
        log = PositionLog(connection, "outbox", 1, timeout=5)
        parking = Parking(connection, log, "outbox", 1, timeout=5)
        for write in (
            parking.settle_keys([("t", b"k")], [1], []),
            parking.settle_topic([1], []),
            parking.hold_topic("t", "TOPIC_DENIED", "no"),
            parking.release_topic("t"),
        ):
            with pytest.raises(LeaseLost):
                await write


Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def milepost(database_url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    """Run a command line against the test's database, outside of this event loop."""
    monkeypatch.setenv("MILEPOST_DATABASE_URL", database_url)

    def call(*words: str) -> tuple[int, str, str]:
        status = main.run(words)
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


async def test_the_commands(database_url: str, kafka: str, topic_prefix: str, milepost: Call) -> None:
    async with held(database_url, kafka, f"{topic_prefix}.told") as it:
        number = str((await it.letter(it.large))["n"])

        async def call(*words: str) -> tuple[int, str, str]:
            return await asyncio.to_thread(milepost, *words)

        status, out, _ = await call("outbox")
        assert status == 1
        for words in ("leader: ", "position: ", "held: 1 key of topic", f"Numbers: {number}", "7 days"):
            assert words in out
        found = json.loads((await call("outbox", "--json"))[1])
        assert found["holds"][0]["scope"] == "relay:key"
        assert {(entry["code"], entry["amount"]) for entry in found["parked"]} == {
            ("TOO_LARGE", 1),
            ("KEY_HELD", 2),
        }
        assert (found["lag"], found["partition_days"], found["restored_copy"]) == (0, 7, False)
        assert found["leader"] and found["position"]

        assert (await call("outbox", "unpark", number))[0] == 2, "a reason is needed"
        status, _, err = await call("outbox", "unpark", str(it.behind[0]), "--reason", "x")
        assert (status, "MP421" in err) == (3, True)
        status, out, _ = await call("outbox", "unpark", number, "--reason", "try")
        assert (status, "parked again: TOO_LARGE" in out) == (1, True)
        status, _, err = await call("outbox", "unpark", "--code", "TOO_LARGE", "--reason", "raised")
        assert (status, "1 parked event would be sent" in err) == (2, True), "nobody can be asked"

        await alter_topic(kafka, it.topic, max_message_bytes="900000")
        command = ["outbox", "unpark", "--topic", it.topic, "--reason", "raised", "--as", "bob"]
        status, out, _ = await call("--json", "--yes", *command)
        lines = [json.loads(line) for line in out.splitlines()]
        assert (status, [line.get("outcome") for line in lines]) == (0, ["sent", None])
        assert lines[-1] == {"event": "done", "unparked": 1, "waiting": 0, "refused": 0}
        assert await it.of_key(it.large, *it.behind) == [it.large, *it.behind]
        status, out, _ = await call("outbox", "unpark", number, "--reason", "again")
        assert (status, "nothing to do: it has been sent" in out) == (0, True)
        assert (await call("outbox"))[0] == 0
        assert (await call("outbox", "unpark", "999999", "--reason", "x"))[0] == 3
        actors = await it.connection.fetch("SELECT actor FROM milepost.audit ORDER BY id DESC LIMIT 1")
        assert actors[0]["actor"] == "bob"


async def test_a_mistyped_topic_is_let_go_with_its_last_letter(
    database_url: str, kafka: str, topic_prefix: str
) -> None:
    nope = f"{topic_prefix}.nope"
    async with connected(database_url) as (connection,), relaying(database_url, kafka):
        first, second = await publish_noted(connection, nope, [Noted(key="k", n=n) for n in range(2)])
        await until_sent(connection)
        held = "SELECT count(*) FROM milepost.hold WHERE scope = 'relay:topic' AND topic = $1"
        assert (await ignore_parked(connection, first, **BY)).outcome == "IGNORED"
        with pytest.raises(UsageError, match="MP313"):
            await publish_noted(connection, nope, [Noted(key="k")])
        assert await connection.fetchval(held, nope) == 1, "one letter is open still"
        assert (await ignore_parked(connection, second, **BY)).outcome == "IGNORED"
        await until(
            lambda: connection.fetchval(f"SELECT ({held}) = 0", nope), within=60, what="the hold to go"
        )
        assert not await connection.fetchval("SELECT missing FROM milepost.topic WHERE name = $1", nope)
        (again,) = await publish_noted(connection, nope, [Noted(key="k", n=2)])
        await until_sent(connection)
        assert await connection.fetchval(held, nope) == 1, "a new event holds it anew"
        await make_topics(kafka, nope)
        assert (await until_arrived(kafka, nope, [again], within=60)).ids() == [again]


async def test_a_missing_topic_of_which_a_letter_is_open_stays_held(database_url: str) -> None:
    async with connected(database_url) as (connection,):
        parking = Parking(connection, PositionLog(connection, "outbox", 1, timeout=9), "outbox", 1, timeout=9)
        await connection.execute(
            "INSERT INTO milepost.hold (scope, topic, key, reason)"
            " SELECT 'relay:topic', t, t::bytea, 'TOPIC_MISSING: x' FROM unnest(ARRAY['a', 'b', 'c', 'd']) AS t"
        )
        insert = (
            "INSERT INTO milepost.dead_letter (id, event_id, scope, topic, seq, headers, stage, code, message,"
            " attempts, first_failed_at, last_failed_at, recoverable, status)"
            " SELECT id, id, $1, $2, 1, '[]', 'RELAY', 'X', 'x', 1, now(), now(), true, $3 FROM gen_random_uuid() AS id"
        )
        await connection.execute(insert, "relay:topic", "a", "OPEN")
        await connection.execute(insert, "relay:key", "b", "RETRY_PENDING")
        await connection.execute(insert, "relay:topic", "c", "IGNORED")
        assert await parking.forsaken_topics(["a", "b", "c", "d"]) == {"c", "d"}
        assert await parking.forsaken_topics(["a"]) == await parking.forsaken_topics([]) == set()
