"""The fixtures give what they promise."""

from __future__ import annotations

from milepost.devstack.ports import run_apart
from milepost.devstack.probe import groups_work

from tests.support.talk import execute

TABLES = "SELECT count(*) FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"


async def test_a_database_comes_with_the_schema(database_url: str) -> None:
    assert await execute(database_url, TABLES) != 0


async def test_an_empty_database_comes_without(empty_database_url: str) -> None:
    assert await execute(empty_database_url, TABLES) == 0


def test_a_broker_answers(kafka: str, topic_prefix: str) -> None:
    assert topic_prefix.isalnum()
    assert run_apart(lambda: groups_work(kafka))
