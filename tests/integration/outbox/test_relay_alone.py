"""A process that only relays holds in memory what a relay needs, whatever the other roles and drivers have."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.outbox import (
    Noted,
    arrived,
    connected,
    make_topics,
    publish_noted,
    until_sent,
)
from tests.support.process import served

#: What loads tens of megabytes for others: sessions of users, readers of topics, whoever tells a collector.
NOT_OURS = {
    *("sqlalchemy", "faststream", "fast_depends", "uvicorn", "fastapi", "psycopg"),
    *("requests", "google", "prometheus_client", "unittest"),
}


async def test_a_relay_loads_neither_sqlalchemy_nor_faststream_nor_an_exporter(
    database_url: str, kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    topic, written = f"{topic_prefix}.notes", tmp_path / "loaded.json"
    await make_topics(kafka, topic)
    environment = {
        "MILEPOST_APP": "tests.support.apps.loading_service:service",
        "MILEPOST_DATABASE_URL": database_url,
        "MILEPOST_KAFKA": kafka,
        "LOADED": str(written),
    }
    async with connected(database_url) as (connection,), served(environment, "relay") as (process,):
        ids = await publish_noted(connection, topic, [Noted(key="k", n=n) for n in range(5)])
        await until_sent(connection)
        assert await process.stop() == 0, process.tail()
    assert (await arrived(kafka, topic)).ids() == ids
    loaded = set(json.loads(written.read_text()))
    assert "milepost.outbox.relay" in loaded
    assert {name.partition(".")[0] for name in loaded} & NOT_OURS == set()
    assert [name for name in sorted(loaded) if name.startswith("opentelemetry.sdk")] == []
