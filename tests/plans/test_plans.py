"""No hot statement reads a table from end to end, however many rows it has; see conftest.py for the rows.

Each is explained with ANALYZE and rolled back. A plan is refused when a sequential scan of a table that grows is in it,
whether or not it was needed this time, and when it touched more pages than its rows can account for.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import md5
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from milepost.console.acts import Sql as ActsSql
from milepost.console.dead_store import Sql as DeadSql
from milepost.console.operations import Sql as OperationsSql
from milepost.console.store import Sql as RunsSql
from milepost.console.webhooks import Sql as WebhookSql
from milepost.consumers.handing import Sql as VersionsSql
from milepost.consumers.pulse import Sql as PulseSql
from milepost.consumers.requests import Sql as RequestSql
from milepost.consumers.resources import _Sql as LockSql
from milepost.consumers.retention import Sql as RetentionSql
from milepost.consumers.store import Sql as SagaSql
from milepost.consumers.store_many import Sql as ManySql
from milepost.inbox.letters import _Sql as LettersSql
from milepost.inbox.operations import _Sql as OnceSql
from milepost.inbox.redrive_store import _Sql as RedriveSql
from milepost.inbox.signals import _Sql as SignalSql
from milepost.inbox.store import _Sql as InboxSql
from milepost.inbox.webhooks import _Sql as IntakeSql
from milepost.outbox.store import ParkingSql
from milepost.outbox.store import Sql as OutboxSql

from tests.plans.conftest import ROWS
from tests.support.outbox import connected

#: Tables that grow with what was done; others have a row for each topic, consumer or process.
GROWING = (
    "outbox",
    "inbox",
    "run",
    "run_key",
    "step",
    "signal",
    "wait",
    "dead_letter",
    "operation",
    "webhook",
    "history",
    "request",
    "resource",
    "resource_queue",
    "fanout_item",
)
#: What the relay's reading connection sets before each statement.
RELAY, WAKER, WALKS = OutboxSql.force_plan, SagaSql.wake_by_index, RetentionSql.for_walks
NOW = datetime.now(UTC)
#: Rows in a state that few have: all of them are looked at where the newest are asked for.
IN_STATE = ROWS // 1000
PREVIOUS = (100, 100 + ROWS // 10 - 10, (150, 160))
CURRENT = (100 + ROWS // 10 - 10, 100 + ROWS // 10 + 1, ())


def named(letter: str, n: int) -> UUID:
    """The id of a row of conftest.py."""
    return UUID(md5(f"{letter}{n}".encode(), usedforsecurity=False).hexdigest())


@dataclass(frozen=True)
class Hot:
    """A statement.

    Attributes:
        pages: Most pages that it may touch.
        before: What its caller sets first.
    """

    sql: str
    arguments: tuple[Any, ...]
    pages: int
    before: str = ""


SOME = [named("i", n) for n in range(1, 101)]
NEW = [named("new", n) for n in range(100)]
RUN, DUE = named("r", 77), timedelta(minutes=1)
ROW = ([NEW[0]], [""], ["t"], ["t"], ["k"], ["plan.event"], [b"{}"], ["{}"])
STEPS = json.dumps(
    [
        {"name": "pay", "iteration": "", "n": 1, "kind": "STEP", "state": "SUCCEEDED", "queue": "default"}
        | {"attempt": 1, "fence": 1, "generation": 1, "doubt": False, "probes": 0, "nudges": 0}
        | {"since": NOW.isoformat()}
    ]
)
MANY, BATCH = [named("r", n) for n in range(1, 101)], ManySql.many_by_index
STEPS_OF_MANY = json.dumps([{"run_id": str(run), **json.loads(STEPS)[0]} for run in MANY])

QUERIES = {
    "publish": Hot(OutboxSql.insert_row, tuple(column[0] for column in ROW), 150),
    "publish many": Hot(OutboxSql.insert_rows, ROW, 60),
    "relay: tick": Hot(OutboxSql.read_new, (CURRENT[1], [150, 160], 2000, 2_000_000), 150, RELAY),
    "relay: floors": Hot(
        OutboxSql.find_floors, (PREVIOUS[1], CURRENT[1], [150, 160], 0, CURRENT), 250, RELAY
    ),
    "relay: page": Hot(
        OutboxSql.read_page, (ROWS - 90, PREVIOUS, CURRENT, [150, 160], 0, 50, 2_000_000), 250, RELAY
    ),
    "relay: plain page": Hot(OutboxSql.read_plain, (ROWS - 90, PREVIOUS, CURRENT, 50), 250, RELAY),
    "relay: unsent": Hot(OutboxSql.oldest_unsent, (CURRENT[1], [150, 160], CURRENT, 0, 1000), 150, RELAY),
    "relay: position": Hot(OutboxSql.load_position, ("outbox",), 20),
    "relay: holds": Hot(ParkingSql.load_holds, (), 20),
    "relay: letters of a topic": Hot(ParkingSql.topic_letters, ("t", 50, 1_000_000), 400),
    "relay: letters of a key": Hot(ParkingSql.key_letters, ("t", b"k2", 50, 1_000_000), 60),
    "relay: keys that can go on": Hot(ParkingSql.due_keys, (False, [], 50), 60),
    "inbox: insert": Hot(
        InboxSql.insert_inbox,
        ("c", NEW, [""] * 100, [b"x"] * 100, ["APPLIED"] * 100, "t", 0, list(range(100))),
        1500,
    ),
    "inbox: fingerprints": Hot(InboxSql.fingerprints, ("c", SOME), 700),
    "inbox: positions": Hot(InboxSql.positions, ("c", ["t"], [0]), 20),
    "inbox: suspects": Hot(InboxSql.suspects, ("c", ["t"], [0]), 20),
    "inbox: move the position": Hot(InboxSql.move_position, ("c", "t", 0, 5), 30),
    "letters: held keys": Hot(LettersSql.held, ("consumer:c", "t", [b"k1", b"k2"]), 20),
    "letters: next to redrive": Hot(RedriveSql.next_letter, ("consumer:c",), 60),
    "letters: of a consumer": Hot(RedriveSql.waiting, (["consumer:c"],), 60),
    "console: letters": Hot(
        DeadSql.letters, (["OPEN"], None, None, [], None, None, None, 5, None), IN_STATE * 60
    ),
    "console: one letter": Hot(DeadSql.letter, (77,), 60),
    "waker: tick": Hot(SagaSql.wake_due, ("s", 1000, DUE, "s.timers", "milepost.timer"), 600, WAKER),
    "waker: leases that have ended": Hot(SagaSql.lease_ended, ("s",), 60),
    "waker: steps of dead workers": Hot(SagaSql.stale_steps, ("s", 100, ["order/1#@1"]), 60),
    "run: load": Hot(SagaSql.load_run, (RUN,), 60),
    "run: lock": Hot(SagaSql.lock_run, (RUN,), 20),
    "run: key": Hot(SagaSql.find_run_key, ("", "order", "k77"), 30),
    "run: claim and finish": Hot(
        SagaSql.store_decision,
        (
            RUN,
            1,
            "SUCCEEDED",
            None,
            None,
            1,
            1,
            None,
            NOW,
            STEPS,
            "[]",
            "[]",
            *([] for _ in range(8)),
            timedelta(0),
            None,
            False,
            None,
        ),
        200,
    ),
    "runs: load a batch": Hot(ManySql.load_runs, (MANY,), 2000, BATCH),
    "runs: store a batch": Hot(
        ManySql.store_decisions,
        (
            MANY,
            [1] * 100,
            ["SUCCEEDED"] * 100,
            *([None] * 100 for _ in range(2)),
            *([1] * 100 for _ in range(2)),
            [None] * 100,
            [NOW] * 100,
            [timedelta(0)] * 100,
            [None] * 100,
            [False] * 100,
            STEPS_OF_MANY,
            "[]",
            "[]",
            *([] for _ in range(9)),
        ),
        6000,
        BATCH,
    ),
    "lock: take": Hot(LockSql.take, ("", "new", NEW[0]), 60),
    "lock: who has it": Hot(LockSql.find_holder, ("", "k77"), 30),
    "lock: hand on": Hot(LockSql.leave, ("", "k77", RUN), 100),
    "lock: give up waiting": Hot(LockSql.leave, ("", "k77", named("q", 777)), 60),
    "lock: give": Hot(LockSql.give, ("", "free"), 100),
    "steps: which runs stop": Hot(PulseSql.stopping_runs, (named("l", 1),), 30),
    "steps: a heartbeat": Hot(PulseSql.beat_progress, (RUN, "pay", "", 0, named("l", 1), "{}"), 30),
    # All ended a moment ago: the oldest of many that are to go, and a walk that finds none.
    "retention: runs": Hot(RetentionSql.purge_runs, (NOW + timedelta(hours=1), 500), 30_000, WALKS),
    "retention: no runs": Hot(RetentionSql.purge_runs, (NOW - timedelta(days=365), 500), 40, WALKS),
    "versions: handed over": Hot(
        VersionsSql.handed, ("s", ["order/1#@1"], ["work", "timer"], ["default"], 100), 20
    ),
    "versions: hand over": Hot(
        VersionsSql.hand_over, (named("r", 1000), "work", "pay", "", 0, "s", ["order/2#@1"], DUE), 120
    ),
    "versions: hand over a reply": Hot(
        VersionsSql.hand_over_reply, (named("r", 1000), "pay", "", "do", "s", ["order/2#@1"], "{}"), 120
    ),
    "requests: open": Hot(RequestSql.open_requests, ("s", ["order/1#@1"], 100), 1000),
    "requests: take": Hot(RequestSql.take_request, (named("a", 1000),), 30),
    "console: worklist": Hot(ActsSql.worklist, ([], 100, None, [], None, None, None), 1500),
    "console: old requests": Hot(ActsSql.old_requests, (DUE,), 1000),
    "signals: insert": Hot(
        SignalSql.insert_signals,
        ([NEW[0]], [""], ["s"], ["new"], ["carrier.delivered"], ["k1000"], ["{}"], [None], [DUE], [None]),
        200,
    ),
    "signals: match": Hot(SignalSql.match_signals, ([named("s", 1000)], DUE), 120),
    "signals: open a wait": Hot(
        SignalSql.open_wait, (RUN, "", "pay", "", 2, "carrier.delivered", "k2000", False, DUE), 120
    ),
    "signals: find": Hot(SignalSql.find_signal, ("", "s", "e77"), 20),
    "once: read": Hot(OnceSql.read, ("", "api", "k77"), 20),
    "webhook: same body": Hot(IntakeSql.same_body, ("", "stripe", "e77", b""), 20),
    "webhook: claim": Hot(IntakeSql.claim_webhooks, ("s", ["stripe"], 10, DUE), 600),
    "console: operations in doubt": Hot(OperationsSql.find_operations, ("api", "k77", None, ""), 60),
    "console: one webhook": Hot(WebhookSql.find_webhooks, ("stripe", "e77", ""), 30),
    "console: runs": Hot(RunsSql.list_runs, ([], None, None, None, None, 20), 400),
    "console: runs by state": Hot(
        RunsSql.list_runs, (["MANUAL_REQUIRED"], None, None, None, None, 20), IN_STATE * 8
    ),
    "console: runs that failed": Hot(RunsSql.list_runs, (["FAILED"], None, None, None, None, 20), 40),
    "console: runs of a rare saga": Hot(RunsSql.list_runs, ([], "rare", None, None, None, 20), 400),
    "console: runs by key": Hot(RunsSql.list_runs, ([], None, "k77", None, None, 20), 60),
    "console: runs by correlation": Hot(RunsSql.list_runs, ([], None, None, "c77", None, 20), 60),
    "console: runs since": Hot(
        RunsSql.list_runs, ([], None, None, None, NOW - timedelta(minutes=5), 20), 200
    ),
}


async def explained(connection: asyncpg.Connection, hot: Hot) -> dict[str, Any]:
    """The plan as it ran, with what it touched; what it changed is rolled back."""
    transaction = connection.transaction()
    await transaction.start()
    try:
        if hot.before:
            await connection.execute(hot.before)
        sql = f"EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, BUFFERS, FORMAT JSON) {hot.sql}"
        found: dict[str, Any] = json.loads(await connection.fetchval(sql, *hot.arguments))[0]["Plan"]
        return found
    finally:
        await transaction.rollback()


def nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    """All nodes of a plan."""
    return [plan, *(node for part in plan.get("Plans", ()) for node in nodes(part))]


def grows(relation: str) -> bool:
    """Whether a table, or the table of a partition, is one that grows."""
    return any(relation == name or relation.startswith(f"{name}_2") for name in GROWING)


@pytest.mark.parametrize("name", QUERIES)
async def test_by_index(large_database_url: str, name: str) -> None:
    hot = QUERIES[name]
    async with connected(large_database_url) as (connection,):
        plan = await explained(connection, hot)
    scans = [
        node["Relation Name"]
        for node in nodes(plan)
        if node["Node Type"] == "Seq Scan" and grows(node["Relation Name"])
    ]
    assert not scans, json.dumps(plan, indent=1)
    touched = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
    assert touched <= hot.pages, f"{touched} pages: {json.dumps(plan, indent=1)}"


async def test_a_sequential_scan_is_seen(large_database_url: str) -> None:
    """The guard itself: what has no index is refused by both of its measures."""
    async with connected(large_database_url) as (connection,):
        plan = await explained(connection, Hot("SELECT id FROM milepost.run WHERE policy = $1", ("x",), 0))
    assert any(node["Node Type"] == "Seq Scan" and grows(node["Relation Name"]) for node in nodes(plan))
    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] > ROWS / 100
