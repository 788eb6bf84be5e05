"""What a step's database error means does not depend on whether it came through SQLAlchemy."""

from __future__ import annotations

import asyncpg
import pytest
from milepost.consumers.classify import Classified, classify
from milepost.schemas.settings import Settings
from pydantic import PostgresDsn
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine

TABLE = "CREATE TABLE paid (id text PRIMARY KEY, amount integer CHECK (amount > 0))"
PAID = "INSERT INTO paid VALUES ('o-1', 5)"
ERRORS = {PAID: "UNIQUE_VIOLATION", "INSERT INTO paid VALUES ('o-2', -5)": "CHECK_VIOLATION"}


def meaning(found: Classified) -> tuple[str, str]:
    return found.verdict, found.code


async def test_a_drivers_error_means_the_same_with_and_without_sqlalchemy(database_url: str) -> None:
    engine = create_async_engine(Settings(database_url=PostgresDsn(database_url)).sqlalchemy_url)
    connection = await asyncpg.connect(database_url)
    try:
        await connection.execute(TABLE)
        await connection.execute(PAID)
        for statement, code in ERRORS.items():
            with pytest.raises(asyncpg.PostgresError) as plain:
                await connection.execute(statement)
            async with engine.connect() as session:
                with pytest.raises(DBAPIError) as wrapped:
                    await session.execute(text(statement))
            assert meaning(classify(plain.value, {})) == ("fatal", code)
            assert meaning(classify(wrapped.value, {})) == ("fatal", code)
    finally:
        await connection.close()
        await engine.dispose()
