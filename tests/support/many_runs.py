"""As many runs as a busy week leaves, written by SQL: of five workflows, most ended, some in front of a person."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import asyncpg

WORKFLOWS: Final = ("order", "notify", "export", "campaign", "report")
FILL: Final = Path(__file__).with_suffix(".sql").read_text().split(";\n")[:-1]


async def fill(connection: asyncpg.Connection[Any], runs: int) -> None:
    """Write so many runs, and look at them as autovacuum would have."""
    for statement in FILL:
        await connection.execute(statement, *([runs] if "$1::" in statement else []))
    for table in ("run", "step", "run_key", "request"):
        await connection.execute(f"VACUUM ANALYZE milepost.{table}")
