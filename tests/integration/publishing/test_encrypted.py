"""An encrypted event from publish to handler: nothing readable in the outbox, on the topic, in letters or in files."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import asyncpg
from milepost import AesGcm, Consumer, Event, publish
from milepost.schemas.transaction import Transaction

from tests.support.inbox import Sent, opened, reader_of, running, send
from tests.support.outbox import arrived, connected, make_topics, relaying, until_sent
from tests.support.waiting import until

SECRET = f"4111-{secrets.token_hex(12)}"
PLAIN = f"seen-{secrets.token_hex(12)}"
KEYS = {"2026-11": secrets.token_bytes(32), "2026-05": secrets.token_bytes(32)}


def paid(topic: str, keys: dict[str, bytes], **options: Any) -> Any:
    """An event class, as one of several processes declares it."""

    class Paid(Event, type="shop.paid", topic=topic, key="order", codec=AesGcm(keys, **options)):
        order: str
        card: str

    return Paid


def open_one(topic: str) -> Any:
    class Noted(Event, type="shop.noted", topic=topic, key="order"):
        order: str
        card: str

    return Noted


async def everything(connection: asyncpg.Connection[Any]) -> str:
    """All rows of all of Milepost's tables as text, bytes in hexadecimal."""
    tables = await connection.fetch(
        "SELECT format('SELECT string_agg(t::text, %L) FROM milepost.%I AS t', chr(10), relname) AS query FROM pg_class"
        " WHERE relnamespace = 'milepost'::regnamespace AND relkind IN ('r', 'p')"
    )
    return "\n".join([str(await connection.fetchval(row["query"])) for row in tables])


async def files_with(connection: asyncpg.Connection[Any], words: Sequence[str]) -> set[str] | None:
    """Which of these words lie in the files of this database; None when its files are elsewhere."""
    await connection.execute("CHECKPOINT")
    oid = await connection.fetchval("SELECT oid FROM pg_database WHERE datname = current_database()")
    folder = Path(await connection.fetchval("SHOW data_directory")) / "base" / str(oid)
    if not folder.is_dir():
        return None
    found = set()
    for file in folder.iterdir():
        content = file.read_bytes()
        found |= {word for word in words if word.encode() in content}
    return found


def written(text: str, word: str) -> bool:
    return word in text or word.encode().hex() in text


async def test_nothing_readable_is_left_anywhere(database_url: str, kafka: str, topic_prefix: str) -> None:
    topic = f"{topic_prefix}.paid"
    await make_topics(kafka, topic, partitions=1)
    ours, old, stranger = (
        paid(topic, KEYS),
        paid(topic, {"2026-05": KEYS["2026-05"]}),
        paid(topic, {"lost": b"x" * 32}),
    )
    mine, noted = paid(topic, KEYS), open_one(topic)
    got: set[str] = set()  # a handler runs again when another event of its batch failed

    async def handle(event: Any, tx: Transaction) -> None:
        if event.order == "failing":
            raise ValueError(f"cannot take {event.card}")
        got.add(f"{event.order} {event.card}")

    async def note(event: Any, tx: Transaction) -> None: ...

    consumer = Consumer(f"{topic_prefix}.billing", unknown="dead_letter")
    consumer.on(mine)(handle)
    consumer.on(noted)(note)
    async with connected(database_url) as (connection,):
        async with connection.transaction():
            await publish(connection, noted(order="plain", card=PLAIN))
            for kind, order in ((ours, "new"), (old, "old"), (stranger, "stranger"), (ours, "failing")):
                await publish(connection, kind(order=order, card=SECRET), headers={"x": "y"})
        async with relaying(database_url, kafka):
            await until_sent(connection, within=60)
        records = (await arrived(kafka, topic)).all()
        assert len(records) == 5
        by_key = {record.key.decode(): record for record in records}
        assert dict(by_key["new"].headers)["milepost-key-id"] == b"2026-11"
        await send(kafka, topic, spoilt(by_key["new"], by_key["old"]))
        async with opened(database_url) as database, running(reader_of(consumer, database, kafka)):
            await until(
                lambda: connection.fetchval("SELECT count(*) = 6 FROM milepost.dead_letter"),
                within=60,
                what="six letters",
            )
            await until(lambda: len(got) == 2, within=30, what="two handled events")
        letters = await connection.fetch(
            "SELECT convert_from(key, 'UTF8') AS key, code, recoverable, message FROM milepost.dead_letter"
        )
        assert {(row["key"], row["code"]) for row in letters} == {
            ("stranger", "KEY_UNKNOWN"),
            ("failing", "HANDLER_FAILED"),
            ("flipped", "DECRYPT_FAILED"),
            ("moved", "DECRYPT_FAILED"),
            ("bare", "NOT_ENCRYPTED"),
            ("odd", "CODEC_UNKNOWN"),
        }
        assert all(row["recoverable"] for row in letters)
        assert got == {f"new {SECRET}", f"old {SECRET}"}
        text = await everything(connection)
        assert written(text, PLAIN), "the search finds what is plain"
        assert not written(text, SECRET)
        found = await files_with(connection, [PLAIN, SECRET])
        assert found in (None, {PLAIN})
    topic_text = [json.dumps([str(part) for part in record.headers]) for record in records]
    values = [bytes(record.value) + bytes(record.key) for record in records]
    assert any(PLAIN.encode() in value for value in values)
    assert not any(SECRET.encode() in value for value in values) and SECRET not in "".join(topic_text)


def spoilt(new: Any, old: Any) -> list[Sent]:
    """Records that somebody changed on their way; each has an id of its own."""
    headers = {name: value for name, value in new.headers if name != "ce_id"}
    flipped = new.value[:-1] + bytes([new.value[-1] ^ 1])
    one, two, three, four = ([("ce_id", f"x{n}".encode()), *headers.items()] for n in range(4))
    bare = [(name, value) for name, value in three if not name.startswith(("milepost-", "content-type"))]
    odd = [(name, b"rot13" if name == "milepost-codec" else value) for name, value in four]
    body = b'{"order":"o","card":"c"}'
    return [
        Sent(value=flipped, headers=one, key=b"flipped"),
        Sent(value=old.value, headers=two, key=b"moved"),
        Sent(value=body, headers=bare, key=b"bare"),
        Sent(value=new.value, headers=odd, key=b"odd"),
    ]


async def test_the_same_event_again_is_known_by_its_ciphertext(
    database_url: str, kafka: str, topic_prefix: str
) -> None:
    """The inbox remembers a hash of the bytes as sent: one of the body could be guessed back where bodies are few."""
    topic = f"{topic_prefix}.paid"
    await make_topics(kafka, topic, partitions=1)
    kind, got = paid(topic, KEYS), []

    async def handle(event: Any, tx: Transaction) -> None:
        got.append(event.order)

    consumer = Consumer(f"{topic_prefix}.billing")
    consumer.on(kind)(handle)
    async with connected(database_url) as (connection,):
        async with connection.transaction():
            await publish(connection, kind(order="a", card="1"), kind(order="b", card="1"))
        rows = await connection.fetch(
            "SELECT payload, headers::text AS headers FROM milepost.outbox ORDER BY seq"
        )
        copies = [
            Sent(
                value=row["payload"],
                headers=[(name, value.encode()) for name, value in json.loads(row["headers"]).items()],
            )
            for row in [*rows, *rows]
        ]
        await send(kafka, topic, copies)
        async with opened(database_url) as database, running(reader_of(consumer, database, kafka)):
            await until(
                lambda: connection.fetchval("SELECT max(next_offset) = 4 FROM milepost.consumer_position"),
                within=60,
                what="all four records",
            )
        prints = await connection.fetch("SELECT fingerprint FROM milepost.inbox")
        assert await connection.fetchval("SELECT count(*) FROM milepost.dead_letter") == 0
    assert got == ["a", "b"] and len(prints) == 2
