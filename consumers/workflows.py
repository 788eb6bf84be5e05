"""What people and tools without the code are to know of a service's sagas, written when a process starts."""

from __future__ import annotations

from typing import Any

import asyncpg

from ..sagas.definition import Definition
from ..sagas.registry import Definitions
from ..streams.queries import Queries


class Sql(Queries, file="workflows.sql"):
    """Queries of this module."""

    register: str


async def register(pool: asyncpg.Pool[Any], service: str, definitions: Definitions) -> None:
    """Write how severe each saga is; of several versions that of the newest.

    Args:
        pool: The service's database.
        service: The service's name.
        definitions: What this process knows.
    """
    newest = dict[str, Definition]()
    for definition in sorted(definitions, key=lambda known: known.version):
        newest[definition.name] = definition
    if newest:
        rows = [(known.name, known.version, known.severity.value) for known in newest.values()]
        await pool.execute(Sql.register, service, *([row[n] for row in rows] for n in range(3)))
