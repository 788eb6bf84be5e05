"""A letter is edited: the old one stays as it was, the new one takes its turn, and both say so."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from milepost.inbox import editing
from milepost.inbox.edit_model import Edit
from milepost.inbox.editing import NewLetter
from milepost.schemas.errors import StateError, UsageError
from milepost.streams.database import Database

from tests.support.inbox import IDS, Effects, consumer_of, intake_of, record
from tests.support.letters import ONCE, Broken, drained, holds, ignore, keyed, raw, redrive, redriver_of

LETTERS = "SELECT * FROM milepost.dead_letter ORDER BY n"
KEPT = ("id", "event_id", "key", "value", "headers", "code", "message", "attempts", "first_failed_at", "n")


@pytest.fixture
def broken(effects: Effects) -> Broken:
    return Broken(effects)


async def edit(database: Database, n: int, change: Edit, *, by: str = "ann", **more: Any) -> NewLetter:
    async with database.pool.acquire() as connection:
        return await editing.edit(
            raw(connection), n, change, by=by, reason="a typo", ids=IDS, max_bytes=100_000, **more
        )


def order(text: str) -> Edit:
    return Edit(value=json.dumps({"order": text}).encode())


async def test_the_original_stays_and_the_edited_event_is_applied_once_in_the_turn_of_its_key(
    database: Database, broken: Broken
) -> None:
    broken.orders = {"o-0"}
    consumer = consumer_of("c", "t", broken.apply, retry=ONCE, hold_key=True)
    intake, redriver = intake_of(consumer, database), redriver_of(consumer, database)
    records = [keyed(n, b"a") for n in range(3)]
    await intake.handle(records)
    before = (await broken.effects.rows(LETTERS))[0]
    made = await edit(database, 1, order("mended"), redrive=True)
    assert (made.n, made.status, made.behind, made.changes["fields"]) == (4, "RETRY_PENDING", None, ["order"])
    await intake.handle([keyed(3, b"a"), *records])
    assert await broken.effects.orders() == []
    await drained(redriver)
    await drained(redriver)
    assert await broken.effects.orders() == ["mended", "o-1", "o-2", "o-3"], "in the order of the key"
    assert await holds(database) == []
    rows = await broken.effects.rows(LETTERS)
    assert [rows[0][name] for name in KEPT] == [before[name] for name in KEPT]
    assert (rows[0]["status"], rows[0]["resolved_by"], rows[0]["edited_as"]) == (
        "IGNORED",
        "ann",
        rows[3]["id"],
    )
    assert (rows[3]["status"], rows[3]["edit_of"], str(rows[3]["event_id"])) == (
        "RESOLVED",
        rows[0]["id"],
        made.event_id,
    )
    assert rows[3]["first_failed_at"] == before["first_failed_at"]
    event = "SELECT event::text FROM effect WHERE text = 'mended'"
    assert await broken.effects.value(event) == made.event_id
    inbox = "SELECT outcome FROM milepost.inbox WHERE event_id = $1"
    assert await broken.effects.value(inbox, rows[0]["event_id"]) == "PARKED"
    assert await broken.effects.value(inbox, rows[3]["event_id"]) == "APPLIED"
    (audit,) = await broken.effects.rows("SELECT * FROM milepost.audit WHERE act = 'letter.edit'")
    assert (audit["actor"], audit["reason"]) == ("ann", "a typo")
    assert json.loads(audit["before"]) == {"status": "OPEN", "event": str(before["event_id"])}
    assert json.loads(audit["after"])["edited_as"] == 4
    assert json.loads(audit["evidence"])["changes"]["fields"] == ["order"]


async def test_one_that_waits_behind_another_is_edited_in_its_place_and_goes_on_by_itself(
    database: Database, broken: Broken
) -> None:
    broken.orders = {"o-0"}
    consumer = consumer_of("c", "t", broken.apply, retry=ONCE, hold_key=True)
    await intake_of(consumer, database).handle([keyed(n, b"a") for n in range(3)])
    made = await edit(database, 2, order("second"), redrive=True)
    assert (made.status, made.behind) == ("OPEN", 1)
    with pytest.raises(StateError, match=r"MP442 .*letter 4 waits behind letter 1"):
        await redrive(database, 4)
    again = await edit(database, 4, order("2nd"), by="bob", redrive=True)
    broken.orders = set()
    await redrive(database, 1)
    await drained(redriver_of(consumer, database))
    assert await broken.effects.orders() == ["o-0", "2nd", "o-2"]
    chain = [(row["n"], row["status"]) for row in await broken.effects.rows(LETTERS)]
    assert chain == [(1, "RESOLVED"), (2, "IGNORED"), (3, "RESOLVED"), (4, "IGNORED"), (again.n, "RESOLVED")]


async def test_an_edited_letter_that_is_not_redriven_stops_the_key_until_somebody_decides(
    database: Database, broken: Broken
) -> None:
    broken.orders = {"o-0", "still"}
    consumer = consumer_of("c", "t", broken.apply, retry=ONCE, hold_key=True)
    await intake_of(consumer, database).handle([keyed(n, b"a") for n in range(2)])
    made = await edit(database, 1, order("still"))
    redriver = redriver_of(consumer, database)
    await drained(redriver)
    assert (await broken.effects.orders(), made.status) == ([], "OPEN")
    await redrive(database, made.n)
    await drained(redriver)
    failed = (await broken.effects.rows(LETTERS))[-1]
    assert (failed["n"], failed["status"], failed["code"], failed["attempts"]) == (
        3,
        "OPEN",
        "HANDLER_FAILED",
        1,
    )
    await ignore(database, made.n)
    await drained(redriver)
    assert await broken.effects.orders() == ["o-1"]


async def test_another_key_goes_behind_its_own_and_lets_the_old_one_go_on(
    database: Database, broken: Broken
) -> None:
    broken.orders = {"o-0", "o-2"}
    consumer = consumer_of("c", "t", broken.apply, retry=ONCE, hold_key=True)
    intake, redriver = intake_of(consumer, database), redriver_of(consumer, database)
    await intake.handle([keyed(0, b"a"), keyed(1, b"a"), keyed(2, b"b")])
    made = await edit(database, 1, Edit(value=b'{"order": "moved"}', key=b"b"), redrive=True)
    assert (made.status, made.behind) == ("OPEN", 3)
    await drained(redriver)
    assert (await broken.effects.orders(), await holds(database)) == (["o-1"], [b"b"])
    await intake.handle([keyed(3, b"b")])
    broken.orders = set()
    await redrive(database, 3)
    await drained(redriver)
    assert await broken.effects.orders() == ["o-1", "o-2", "moved", "o-3"]
    assert await holds(database) == []


async def test_what_was_never_an_event_becomes_one(database: Database, broken: Broken) -> None:
    consumer = consumer_of("c", "t", broken.apply, retry=ONCE)
    bad = record(0)
    bad.headers = [(name, value) for name, value in bad.headers if name != "ce_type"]
    bad.value = b"{broken"
    await intake_of(consumer, database).handle([bad])
    change = Edit(value=b'{"order": "x"}', headers={"ce_type": "test.paid"})
    made = await edit(database, 1, change, redrive=True)
    await drained(redriver_of(consumer, database))
    assert await broken.effects.orders() == ["x"]
    assert (await broken.effects.rows(LETTERS))[1]["n"] == made.n


async def test_two_who_edit_at_once_make_one_letter(database: Database, broken: Broken) -> None:
    broken.orders = {"o-0"}
    consumer = consumer_of("c", "t", broken.apply, retry=ONCE, hold_key=True)
    await intake_of(consumer, database).handle([keyed(0, b"a")])
    done = await asyncio.gather(
        *(edit(database, 1, order(f"e-{n}"), by=f"p{n}", redrive=True) for n in range(4)),
        return_exceptions=True,
    )
    refused = [one for one in done if isinstance(one, StateError)]
    assert (len(refused), {one.code for one in refused}) == (3, {"MP774"})
    assert "It was edited as letter 2." in refused[0].text
    await drained(redriver_of(consumer, database))
    assert len(await broken.effects.orders()) == 1


async def test_what_is_refused_changes_nothing(database: Database, broken: Broken) -> None:
    broken.orders = {"o-0"}
    await intake_of(consumer_of("c", "t", broken.apply, retry=ONCE), database).handle([record(0)])
    relays = """
        INSERT INTO milepost.dead_letter (id, scope, event_id, topic, seq, key, value, headers, stage, code, message,
            attempts, first_failed_at, last_failed_at, recoverable)
        VALUES (gen_random_uuid(), 'relay:key', gen_random_uuid(), 't', 1, 'k', 'x', '{}', 'RELAY', 'TOO_LARGE', 'm', 1,
            milepost.clock(), milepost.clock(), true)
    """
    await database.pool.execute(relays)
    before = [tuple(row) for row in await broken.effects.rows(LETTERS)]
    for n, change, code in [
        (1, Edit(value=b"{"), "MP770"),
        (1, Edit(value=b'"' + b"x" * 100_000 + b'"'), "MP771"),
        (1, Edit(), "MP772"),
        (2, order("x"), "MP775"),
        (7, order("x"), "MP440"),
    ]:
        with pytest.raises((StateError, UsageError)) as raised:
            await edit(database, n, change)
        assert raised.value.code == code
    assert [tuple(row) for row in await broken.effects.rows(LETTERS)] == before
    assert await broken.effects.value("SELECT count(*) FROM milepost.audit") == 0
