"""A topic that ACLs close to the relay holds its rows and nothing else; they go by themselves once it is opened."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from milepost.devstack.errors import DevstackError
from milepost.outbox.log import outbox_state
from milepost.outbox.unpark import ask_relay

from tests.support.guarded import DESCRIBE, READ, WRITE, GuardedKafka
from tests.support.outbox import (
    IDS,
    Noted,
    arrived,
    connected,
    make_topics,
    publish_noted,
    relaying,
    until_arrived,
    until_sent,
)
from tests.support.waiting import until


@pytest.fixture(scope="module")
def guarded() -> Iterator[GuardedKafka]:
    """A broker with ACLs."""
    try:
        with GuardedKafka() as server:
            yield server
    except DevstackError as missing:
        pytest.skip(str(missing))


@pytest.mark.parametrize("seen", [False, True], ids=["hidden", "visible"])
async def test_denied_until_it_is_granted(
    database_url: str, guarded: GuardedKafka, topic_prefix: str, seen: bool
) -> None:
    kafka, closed, free = guarded.bootstrap, f"{topic_prefix}.closed", f"{topic_prefix}.free"
    await make_topics(kafka, closed, free)
    await guarded.close_to_others(closed)
    await guarded.allow(closed, READ, *([DESCRIBE] if seen else []), user="READER")
    if seen:
        await guarded.allow(closed, DESCRIBE)
    async with connected(database_url) as (connection,), relaying(database_url, kafka) as running:
        ids = await publish_noted(connection, closed, [Noted(key=f"k{n % 3}", n=n) for n in range(100)])
        others = await publish_noted(connection, free, [Noted(key="k", n=n) for n in range(20)])
        assert (await until_arrived(kafka, free, others)).ids() == others, "other topics go on, each row once"
        await until_sent(connection)
        found = await connection.fetch("SELECT event_id, code, status FROM milepost.dead_letter ORDER BY seq")
        assert [(row["event_id"], row["code"], row["status"]) for row in found] == [
            (event, "TOPIC_DENIED", "OPEN") for event in ids
        ]
        await ask_relay(connection, ids[0], by="ann", reason="granted?", ids=IDS)
        await until(
            lambda: (
                connection.fetchval(
                    "SELECT status = 'OPEN' AND attempts > 1 FROM milepost.dead_letter WHERE id = $1", ids[0]
                )
                if seen
                else connection.fetchval(
                    "SELECT count(*) = 100 FROM milepost.dead_letter WHERE status <> 'RESOLVED'"
                )
            ),
            within=20,
            what="it to be denied again",
        )
        ids += await publish_noted(connection, closed, [Noted(key=f"k{n % 3}", n=n) for n in range(100, 106)])
        await until_sent(connection)
        assert running.relay.health().ok
        await guarded.allow(closed, WRITE, READ, DESCRIBE)
        letters = "SELECT count(*) FROM milepost.dead_letter WHERE status <> 'RESOLVED'"
        await until(
            lambda: connection.fetchval(f"SELECT ({letters}) = 0"), within=40, what="all of them to be sent"
        )
        late = await publish_noted(connection, closed, [Noted(key="k0", n=200)])
        await until_sent(connection)
        assert (await outbox_state(connection)).lag == 0
    found_records = await arrived(kafka, closed)
    assert sorted(found_records.ids()) == sorted([*ids, *late]), "each once"
    assert found_records.order()[b"k0"] == [*(event for n, event in enumerate(ids) if n % 3 == 0), *late]
