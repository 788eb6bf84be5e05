"""Rows that `publish` would not write, or that share an id: none is lost, and none stands in the way of others."""

from __future__ import annotations

import pytest

from tests.support.outbox import (
    IDS,
    Noted,
    connected,
    insert_row,
    make_topics,
    publish_noted,
    relaying,
    until_arrived,
    until_sent,
)


@pytest.mark.parametrize("held", ["", "*"])
async def test_what_no_topic_can_be_called_is_put_aside(
    database_url: str, kafka: str, topic_prefix: str, held: str
) -> None:
    good = f"{topic_prefix}.good"
    await make_topics(kafka, good)
    async with connected(database_url) as (connection,):
        # The first is longer than the protocol has room for, and does not fit into an index.
        long = await connection.fetchval(
            "SELECT string_agg(md5(n::text), '') FROM generate_series(1, 1250) AS n"
        )
        bad = [await insert_row(connection, topic) for topic in (long, "or ders", "", ".", "..")]
        bad.append(await insert_row(connection, long, headers="[]"))
        (fine,) = await publish_noted(connection, good, [Noted(key="k")])
        async with relaying(database_url, kafka, hold_topics=held):
            await until_arrived(kafka, good, [fine])
            await until_sent(connection)
        letters = await connection.fetch(
            "SELECT id, topic, code, recoverable FROM milepost.dead_letter ORDER BY seq"
        )
        assert [letter["id"] for letter in letters] == bad
        assert {(letter["code"], letter["recoverable"]) for letter in letters} == {("ROW_INVALID", False)}
        assert [letter["topic"] for letter in letters] == [long[:249], "or ders", "", ".", "..", long[:249]]
        assert await connection.fetchval("SELECT count(*) FROM milepost.hold") == 0


async def test_rows_of_one_event_for_two_topics_are_two_letters(
    database_url: str, kafka: str, topic_prefix: str
) -> None:
    topics = [f"{topic_prefix}.{n}" for n in range(3)]
    event = IDS.new()
    call = "SELECT milepost.publish($1, 'test.noted', '{}', 'k', id => $2)"
    async with connected(database_url) as (connection,), relaying(database_url, kafka):
        async with connection.transaction():
            for topic in topics[:2]:
                await connection.execute(call, topic, event)
        await until_sent(connection)
        await connection.execute(call, topics[2], event)
        await until_sent(connection)
        letters = await connection.fetch("SELECT * FROM milepost.dead_letter ORDER BY seq")
        assert [letter["topic"] for letter in letters] == topics
        assert {letter["event_id"] for letter in letters} == {event}
        assert letters[0]["id"] == event and len({letter["id"] for letter in letters}) == 3
        await make_topics(kafka, *topics)
        for topic in topics:
            await until_arrived(kafka, topic, [event])
