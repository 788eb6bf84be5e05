"""What pages read of what went wrong: within what the reader may see, payloads hidden from who may not see them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import asyncpg
import pytest
from milepost.console.views import describing, flow, letters, unknown, waiting
from milepost.recovery.letters import LetterFilter, act_on, choose
from milepost.recovery.permissions import EVERYTHING, NOTHING, Actor, ActorKind, Grant, Role, Scope
from milepost.schemas.errors import StateError
from milepost.schemas.settings import Settings
from milepost.streams.database import Database

from tests.support.house import ROOT
from tests.support.inbox import IDS, Effects, consumer_of, intake_of, record
from tests.support.letters import ONCE, Broken, keyed, raw, redrive

RUNS = (ROOT / "tests/support/sql/console_views.sql").read_text()
ACME = Scope(frozenset({"acme"}), None)
ANN = Actor("ann", ActorKind.PERSON, (Grant(Role.OPERATOR),))
ORDERS = Scope(None, frozenset({"order"}))


@pytest.fixture
async def seeded(database: Database) -> AsyncIterator[asyncpg.Connection[Any]]:
    await database.pool.execute(RUNS)
    broken = Broken(Effects(database.pool), {"o-0", "o-3"})
    held = consumer_of("c", "t", broken.apply, retry=ONCE, hold_key=True)
    await intake_of(held, database).handle(
        [
            keyed(0, b"a"),
            keyed(1, b"a"),
            keyed(2, b"a"),
            keyed(3, b"\xff\x00"),
            record(4, body=["no", "order"]),
        ]
    )
    async with database.pool.acquire() as connection:
        yield raw(connection)


async def test_unknown_is_shown_with_its_evidence_and_what_happens_next(
    seeded: asyncpg.Connection[Any],
) -> None:
    found = await unknown.unknown(seeded, EVERYTHING)
    by_key = {one.key: one for one in (*found.asked, *found.given_up)}
    assert [one.key for one in found.given_up] == ["o-3"]
    asked, probing, person = by_key["o-1"], by_key["o-2"], by_key["o-3"]
    assert asked.doubt_at is not None
    assert asked.settles_at == asked.doubt_at + timedelta(minutes=2)
    assert asked.gives_up_at == asked.doubt_at + timedelta(hours=1)
    assert (asked.next, asked.probe) == ("the probe is asked again", True)
    assert [(one.answer, one.decision) for one in asked.answers] == [
        ("found", "MARK_AS_SUCCESS"),
        ("error", "NONE"),
    ]
    assert "4242" not in found.model_dump_json(), "what was found is the run's result"
    assert "HTTP_503" in asked.answers[1].detail
    assert probing.next == "worker host-1 is asking the probe now; without an answer another one asks"
    assert (person.next, person.next_at, person.probe) == (
        "asking has ended: a person says what happened",
        None,
        None,
    )
    assert [one.key for one in (await unknown.unknown(seeded, ACME)).asked] == ["o-2"]
    assert {one.key for one in (await unknown.unknown(seeded, ORDERS)).asked} == {"o-1", "o-2"}
    nobody = await unknown.unknown(seeded, NOTHING)
    assert (nobody.asked, nobody.given_up) == ([], [])


async def test_letters_are_grouped_listed_and_shown(
    seeded: asyncpg.Connection[Any], database: Database
) -> None:
    groups = await letters.letter_groups(seeded, EVERYTHING, payloads=EVERYTHING)
    assert {(group.code, group.amount) for group in groups.groups} == {
        *{("HANDLER_FAILED", 2), ("KEY_HELD", 2), ("INVALID_BODY", 1)}
    }
    failed = next(group for group in groups.groups if group.code == "HANDLER_FAILED")
    assert (failed.cause, failed.consumer, groups.cut) == ("ValueError: o-<n> is broken", "c", False)
    chosen = LetterFilter(cause=failed.name)
    first = await letters.letters(seeded, EVERYTHING, chosen, limit=1)
    assert ([row.n for row in first.letters], first.next) == ([1], 1)
    second = await letters.letters(seeded, EVERYTHING, chosen, after=first.next or 0)
    assert ([row.n for row in second.letters], second.letters[0].key, second.next) == ([4], "0xff00", None)
    shown = await letters.letter(seeded, EVERYTHING, 1, readable=True)
    assert (shown.value.kind, shown.value.text) == ("json", '{\n  "order": "o-0"\n}')
    assert ([one.n for one in shown.line], shown.inbox) == ([1, 2, 3], "PARKED")
    hidden = await letters.letter(seeded, EVERYTHING, 1, readable=False)
    assert (hidden.value.kind, hidden.value.text, hidden.value.bytes) == ("hidden", "", 16)
    assert all(header.value.kind == "hidden" for header in hidden.headers)
    assert (hidden.letter.message, shown.letter.message) == ("ValueError: …", "ValueError: o-0 is broken")
    blind = await letters.letter_groups(seeded, EVERYTHING)
    assert {group.cause for group in blind.groups if group.code != "KEY_HELD"} == {"ValueError: …", "…"}
    listed = await letters.letters(seeded, EVERYTHING, LetterFilter())
    assert "o-0" not in listed.model_dump_json() and "no order" not in listed.model_dump_json()
    await redrive(database, 1)
    acts = (await letters.letter(seeded, EVERYTHING, 1, readable=False)).audits
    assert [(one.actor, one.act) for one in acts] == [("ann", "letter.redrive")]
    for scope in (ACME, ORDERS, NOTHING):
        assert (await letters.letter_groups(seeded, scope)).groups == []
        assert (await letters.letters(seeded, scope, LetterFilter())).letters == []
        with pytest.raises(StateError, match="MP440"):
            await letters.letter(seeded, scope, 1, readable=True)


async def test_letters_are_chosen_for_an_act_and_each_has_an_outcome(seeded: asyncpg.Connection[Any]) -> None:
    every = LetterFilter(consumer="c")
    assert await choose(seeded, "redrive", every, scope=EVERYTHING, limit=10) == [1, 4, 5]
    assert await choose(seeded, "redrive", every, scope=ACME, limit=10) == []
    outcomes = [await act_on(seeded, ANN, "redrive", n, reason="r", ids=IDS) for n in (1, 1, 2, 99)]
    words = [(one.word, one.code) for one in outcomes]
    assert words == [("ASKED", None), ("NOOP", None), ("ASKED", None), ("REFUSED", "MP440")]
    viewer = Actor("eve", ActorKind.PERSON, (Grant(Role.VIEWER),))
    denied = await act_on(seeded, viewer, "ignore", 4, reason="r", ids=IDS)
    assert (denied.word, denied.code) == ("REFUSED", "MP660")
    kept = await seeded.fetch("SELECT actor, act, outcome FROM milepost.audit ORDER BY id")
    assert [tuple(row) for row in kept] == [
        ("ann", "letter.redrive", "DONE"),
        ("ann", "letter.redrive", "DONE"),
        ("eve", "letter.ignore", "REFUSED"),
    ]
    assert await choose(seeded, "redrive", every, scope=EVERYTHING, limit=10) == [4, 5]
    assert await choose(seeded, "ignore", every, scope=EVERYTHING, limit=10) == [1, 4, 5]


async def test_what_waits_is_shown_in_the_order_in_which_it_goes_on(seeded: asyncpg.Connection[Any]) -> None:
    held = (await waiting.holds(seeded, EVERYTHING)).holds
    assert {(one.key, one.waiting, one.first, one.first_code) for one in held} == {
        *{("a", 3, 1, "HANDLER_FAILED"), ("0xff00", 1, 4, "HANDLER_FAILED")}
    }
    assert [one.n for one in next(one for one in held if one.key == "a").line] == [1, 2, 3]
    assert (await waiting.holds(seeded, ACME)).holds == []
    assert {one.reason for one in held} == {"HANDLER_FAILED: ValueError: …"}
    # A key that letters of several tenants wait behind: each sees its own.
    await seeded.execute("UPDATE milepost.dead_letter SET tenant = 'acme' WHERE n = 2")
    (own,) = (await waiting.holds(seeded, ACME)).holds
    assert (own.key, own.waiting, own.first, [one.n for one in own.line]) == ("a", 1, 2, [2])
    assert [one.n for one in (await letters.letter(seeded, ACME, 2, readable=False)).line] == [2]
    found = await waiting.signals(seeded, EVERYTHING)
    assert [(one.state, one.run) for one in found.signals] == [
        *[("matched", "order/o-1"), ("expired", None), ("unmatched", None)]
    ]
    page = await waiting.signals(seeded, EVERYTHING, limit=1)
    assert page.next == page.signals[0].id
    assert len((await waiting.signals(seeded, EVERYTHING, before=page.next)).signals) == 2
    for state in ("matched", "unmatched", "expired"):
        assert [one.state for one in (await waiting.signals(seeded, EVERYTHING, state=state)).signals] == [
            state
        ]
    assert [one.state for one in (await waiting.signals(seeded, ACME)).signals] == ["expired"]
    assert [one.state for one in (await waiting.signals(seeded, ORDERS)).signals] == ["matched"]
    signal = found.signals[0].id
    assert "4242" in (await waiting.signal_payload(seeded, EVERYTHING, signal, readable=True)).text
    assert (await waiting.signal_payload(seeded, EVERYTHING, signal, readable=False)).kind == "hidden"
    with pytest.raises(StateError, match="MP776"):
        await waiting.signal_payload(seeded, ACME, signal, readable=True)
    locks = await waiting.resources(seeded, EVERYTHING)
    assert [(one.name, one.run, one.waiting) for one in locks.resources] == [("stock:tea", "order/o-1", 1)]
    queues = {queue.queue: queue for queue in locks.queues}
    assert (queues["default"].workers, queues["default"].busy, queues["slow"].workers) == (1, 1, 1)
    theirs = await waiting.resources(seeded, ACME)
    assert (theirs.resources, theirs.queues, theirs.workers) == ([], [], []), (
        "they count what all tenants have"
    )
    line = await waiting.resource_line(seeded, EVERYTHING, "", "stock:tea")
    assert [one.run for one in line] == ["pay/o-3"]


async def test_outbox_replays_settings_and_permissions_are_told(seeded: asyncpg.Connection[Any]) -> None:
    out = await flow.outbox(seeded)
    assert (out.waiting, out.leader, out.position, out.restored_copy) == (1, None, None, False)
    assert out.partition_days >= 3 and [one.topic for one in out.positions] == ["t"]
    listed = (await flow.replays(seeded)).replays
    assert [(one.done, one.total, one.interrupted, one.slice) for one in listed] == [
        (12, 15, True, "0:10-20,1:0-5")
    ]
    assert (await flow.replay(seeded, listed[0].id))[0].counts == {"applied": 9, "missing": 3}
    assert await flow.replayable(seeded) == [("c", "t")]
    meanings = describing.meanings(Settings)
    assert set(Settings.model_fields) <= set(meanings), "every setting says what it does"
    table = {one.act: one for one in describing.permissions_view()}
    assert table["replay_apply"].roles == {
        "VIEWER": "FORBIDDEN",
        "OPERATOR": "FORBIDDEN",
        "APPROVER": "FORBIDDEN",
        "ADMIN": "SAFE_REPAIR",
        "AGENT": "FORBIDDEN",
    }
