"""Replaying slices of real topics: what was applied, what is missing, and nothing twice because of it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from milepost import ReplayOutcome, StateError, UsageError
from milepost.inbox.replay_store import ReplayStore
from milepost.schemas.ids import SystemClock
from milepost.streams.topics import ensure_topics

from tests.support.inbox import IDS, Sent, committed, headers, paid, reader_of, running, send
from tests.support.replays import Shop, shop
from tests.support.waiting import until

PARTITIONS = 3


@pytest.fixture
async def topic(kafka: str, topic_prefix: str) -> str:
    name = f"{topic_prefix}.orders"
    await ensure_topics(kafka, [name], partitions=PARTITIONS)
    return name


@pytest.fixture
async def live(database_url: str, kafka: str, topic: str) -> AsyncIterator[Shop]:
    """A shop that has consumed 30 orders, ten per partition."""
    async with shop(database_url, kafka, topic) as found:
        await found.consume([paid(f"o-{n}", partition=n % 3) for n in range(30)], until_effects=30)
        yield found


ALL = dict.fromkeys(range(PARTITIONS), 0)


async def test_every_outcome_is_told_apart(live: Shop, tmp_path: Path) -> None:
    twice = IDS.new()
    extra = [
        paid("first", event_id=twice, partition=0),
        paid("second", event_id=twice, partition=0),
        Sent(b"not json", [], partition=1),
        Sent(b"{}", headers(IDS.new(), type="test.other"), partition=1),
        Sent(b'{"order": "nameless"}', [h for h in headers(IDS.new()) if h[0] != "ce_id"], partition=1),
        paid("bad-one", partition=2),
    ]
    await live.consume(extra, until_effects=32)
    await live.lose("o-3", "o-7")
    await send(live.kafka, live.topic, [paid("later", partition=2)])
    before, outbox = list(live.runs), await live.published()
    file = tmp_path / "report.jsonl"
    report = await live.service.replay(live.topic, topic=live.topic, since=ALL, report=file)
    assert {outcome.value: n for outcome, n in report.counts.items()} == {
        "applied": 28 + 2,
        "missing": 2,
        "conflicting": 1,
        "undecodable": 1,
        "skipped": 1,
        "parked": 1,
        "ahead": 1,
    }
    assert (report.applied, report.missing, report.conflicting, report.unidentified) == (30, 2, 1, 1)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(lines) == 37
    assert [(line["partition"], line["offset"]) for line in lines] == sorted(
        (line["partition"], line["offset"]) for line in lines
    )
    found = {(line["partition"], line["offset"]): line["outcome"] for line in lines}
    assert (found[0, 1], found[1, 2], found[0, 11], found[2, 11]) == (
        "missing",
        "missing",
        "conflicting",
        "ahead",
    )
    assert {event.outcome for event in report.findings} == {
        ReplayOutcome(name) for name in ("missing", "conflicting", "undecodable", "parked", "ahead")
    }
    assert live.runs == before and await live.published() == outbox, "a dry run runs nothing"


async def test_what_is_missing_is_applied_once_in_order(live: Shop) -> None:
    await live.lose("o-27", "o-3", "o-15", "o-4")
    live.runs.clear()
    before = await live.published()
    report = await live.service.replay(live.topic, topic=live.topic, since=ALL, apply=True)
    assert {o.value: n for o, n in report.counts.items()} == {"applied": 26, "replayed": 4}
    assert live.runs == ["o-3", "o-15", "o-27", "o-4"]
    assert await live.twice() == {} and await live.published() == before + 4
    again = await live.service.replay(live.topic, topic=live.topic, since=ALL, apply=True)
    assert {o.value: n for o, n in again.counts.items()} == {"applied": 30}
    assert len(live.runs) == 4 and await live.twice() == {}
    # Its mark is the live group's own: same identity, fingerprint and place.
    await live.consume([paid("next")], until_effects=31)
    assert live.runs[4:] == ["next"]


async def test_the_live_group_is_left_alone(live: Shop) -> None:
    await live.lose("o-3")
    admin = AIOKafkaAdminClient(bootstrap_servers=live.kafka)
    await admin.start()
    try:

        async def groups() -> set[str]:
            return {group[0] for group in await admin.list_consumer_groups()}

        positions = "SELECT partition, next_offset, at FROM milepost.consumer_position ORDER BY partition"
        before = (await committed(live.kafka, live.topic), await live.effects.rows(positions))
        known = {group for group in await groups() if live.topic in group}
        async with live.opened() as database:
            reader = reader_of(live.consumer, database, live.kafka)
            async with running(reader):
                await until(lambda: reader.health().detail.startswith("3 partitions"), within=20)
                members = await admin.describe_consumer_groups([live.topic])
                for apply in (False, True):
                    await live.service.replay(live.topic, topic=live.topic, since=ALL, apply=apply)
                assert reader.health().detail.startswith("3 partitions")
                after = await admin.describe_consumer_groups([live.topic])
                assert str(members) == str(after), "nobody joined, nobody left"
            assert await ReplayStore(live.topic).suspects(database.pool, [(live.topic, 0)]) == {}
        assert (await committed(live.kafka, live.topic), await live.effects.rows(positions)) == before
        assert {group for group in await groups() if live.topic in group} == known
    finally:
        await admin.close()


async def test_nothing_is_applied_ahead_of_the_consumer(live: Shop) -> None:
    """Interleaving 8, first half, and scenario 55: the boundary is exact."""
    await send(live.kafka, live.topic, [paid(f"late-{n}", partition=0) for n in range(5)])
    await live.lose("o-0", "o-27")
    live.runs.clear()
    with pytest.raises(StateError) as raised:
        await live.service.replay(live.topic, topic=live.topic, since={0: 0}, until={0: 11}, apply=True)
    assert raised.value.code == "MP493" and "--until 0:10" in raised.value.text
    assert live.runs == []
    report = await live.service.replay(live.topic, topic=live.topic, since={0: 0}, until={0: 10}, apply=True)
    assert live.runs == ["o-0", "o-27"]
    report = await live.service.replay(live.topic, topic=live.topic, since=ALL, apply=True)
    assert report.ends == {0: 10, 1: 10, 2: 10} and sum(report.counts.values()) == 30
    await live.consume([], until_effects=35)
    assert live.runs[2:] == [f"late-{n}" for n in range(5)] and await live.twice() == {}


async def test_an_offset_that_somebody_has_reset_counts_as_the_consumers_place(live: Shop) -> None:
    client = AIOKafkaConsumer(bootstrap_servers=live.kafka, group_id=live.topic, enable_auto_commit=False)
    await client.start()
    try:
        client.assign([TopicPartition(live.topic, 0)])
        await client.commit({TopicPartition(live.topic, 0): 4})
    finally:
        await client.stop()
    await live.lose("o-0", "o-27")
    with pytest.raises(StateError, match="MP493"):
        await live.service.replay(live.topic, topic=live.topic, since={0: 0}, until={0: 10}, apply=True)
    await live.service.replay(live.topic, topic=live.topic, since={0: 0}, apply=True)
    assert live.runs.count("o-0") == 2 and live.runs.count("o-27") == 1


async def test_nothing_is_applied_below_what_the_inbox_remembers(
    database_url: str, kafka: str, topic: str
) -> None:
    """Interleaving 8, second half: purged rows are not missing."""
    async with shop(database_url, kafka, topic) as live:
        await live.consume([paid(f"o-{n}", partition=0) for n in range(10)], until_effects=10)
        # The inbox has forgotten all up to now, and what comes from now on is remembered.
        await live.effects.value("DELETE FROM milepost.inbox")
        await live.effects.value(
            "INSERT INTO milepost.retention (kind, purged_below) VALUES ('inbox', clock_timestamp())"
        )
        await live.consume([paid(f"n-{n}", partition=0) for n in range(5)], until_effects=15)
        await live.lose("n-3")
        live.runs.clear()
        with pytest.raises(StateError) as raised:
            await live.service.replay(topic, topic=topic, since={0: 0}, apply=True)
        assert raised.value.code == "MP492" and "--since 0:10 or later" in raised.value.text
        dry = await live.service.replay(topic, topic=topic, since={0: 0})
        assert {o.value: n for o, n in dry.counts.items()} == {"forgotten": 10, "applied": 4, "missing": 1}
        await live.service.replay(topic, topic=topic, since={0: 10}, apply=True)
        assert live.runs == ["n-3"] and await live.twice() == {}


async def test_slices_by_time_and_gaps(live: Shop) -> None:
    now = SystemClock().now()
    hour = timedelta(hours=1)
    whole = await live.service.replay(live.topic, topic=live.topic, since=now - hour, until=now + hour)
    assert whole.begins == ALL and whole.ends == dict.fromkeys(range(3), 10)
    none = await live.service.replay(live.topic, topic=live.topic, since=now + hour)
    assert sum(none.counts.values()) == 0
    part = await live.service.replay(live.topic, topic=live.topic, since={1: 2, 2: 8}, until={1: 4, 2: 99})
    assert sum(part.counts.values()) == 2 + 2 and part.ends == {1: 4, 2: 10}
    # Aborted records and markers are gaps in the offsets, at the end too.
    producer = AIOKafkaProducer(bootstrap_servers=live.kafka, transactional_id=live.topic)
    await producer.start()
    try:
        for good in (False, True, False):
            await producer.begin_transaction()
            event = paid(f"tx-{good}", partition=0)
            await producer.send_and_wait(
                live.topic, event.value, key=b"k", partition=0, headers=list(event.headers)
            )
            await (producer.commit_transaction() if good else producer.abort_transaction())
    finally:
        await producer.stop()
    report = await live.service.replay(live.topic, topic=live.topic, since={0: 8})
    assert {o.value: n for o, n in report.counts.items()} == {"applied": 2, "ahead": 1}
    assert report.ends == {0: 16}


async def test_what_cannot_be_replayed_is_refused_by_name(live: Shop) -> None:
    replay = live.service.replay
    nothing: dict[str, Any] = {}
    for name, topic, since, more, code in (
        ("nobody", live.topic, ALL, nothing, "MP490"),
        (live.topic, "nowhere-at-all", ALL, nothing, "MP491"),
        (live.topic, live.topic, {7: 0}, nothing, "MP491"),
        (live.topic, live.topic, {0: 5}, {"until": {0: 3}}, "MP491"),
    ):
        with pytest.raises(UsageError) as raised:
            await replay(name, topic=topic, since=since, **more)
        assert raised.value.code == code, raised.value.text
    with pytest.raises(StateError, match="MP494"):
        await replay(live.topic, topic=live.topic, since=ALL, resume=IDS.new())


async def test_an_event_that_fails_again_is_parked_like_any_other(live: Shop) -> None:
    await live.lose("o-3", "o-6")
    healthy = live.handle

    async def broken(event: object, tx: object) -> None:
        if getattr(event, "order", "") == "o-3":
            raise ValueError("still")
        await healthy(event, tx)  # type: ignore[arg-type]

    kind, _ = live.consumer._handlers["test.paid"]
    live.consumer._handlers["test.paid"] = (kind, broken)
    report = await live.service.replay(live.topic, topic=live.topic, since=ALL, apply=True)
    assert {o.value: n for o, n in report.counts.items()} == {"applied": 28, "replayed": 1, "parked": 1}
    assert await live.effects.value("SELECT code FROM milepost.dead_letter") == "HANDLER_FAILED"
    copies = "SELECT count(*) FROM milepost.outbox WHERE topic = 'shop.dead'"
    assert await live.effects.value(copies) == 1, "other tools are told of it too"


async def test_a_deadlock_with_others_is_tried_again(live: Shop) -> None:
    await live.lose("o-3", "o-6")
    healthy, met = live.handle, list[str]()

    async def deadlocked(event: Any, tx: Any) -> None:
        await healthy(event, tx)
        if len(met) < 2:
            met.append(event.order)
            await tx.connection.execute("DO $$ BEGIN RAISE 'deadlock' USING ERRCODE = '40P01'; END $$")

    kind, _ = live.consumer._handlers["test.paid"]
    live.consumer._handlers["test.paid"] = (kind, deadlocked)
    report = await live.service.replay(live.topic, topic=live.topic, since=ALL, apply=True)
    assert {o.value: n for o, n in report.counts.items()} == {"applied": 28, "replayed": 2}
    assert len(met) == 2 and await live.twice() == {}
