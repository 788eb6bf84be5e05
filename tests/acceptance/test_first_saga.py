"""The README's first saga, word for word, on real servers: served, started, and done once."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path

import asyncpg

from tests.support.house import ROOT
from tests.support.process import served
from tests.support.waiting import until

BLOCK = re.compile(r"^```python\n# hello\.py\n(.*?)^```$", re.M | re.S)


async def test_the_first_saga_of_the_readme_runs(database_url: str, kafka: str, tmp_path: Path) -> None:
    [text] = BLOCK.findall((ROOT / "README.md").read_text())
    (tmp_path / "hello.py").write_text(text)
    env = {
        "MILEPOST_DATABASE_URL": database_url,
        "MILEPOST_KAFKA": kafka,
        "MILEPOST_CREATE_TOPICS": "true",
        "MILEPOST_APP": "hello:service",
        "PYTHONPATH": os.pathsep.join(
            part for part in [str(tmp_path), os.environ.get("PYTHONPATH", ""), str(ROOT)] if part
        ),
    }
    connection = await asyncpg.connect(database_url)
    try:
        async with served(env, "") as (process,):
            starting = await asyncio.create_subprocess_exec(
                sys.executable,
                "hello.py",
                cwd=tmp_path,
                env={**os.environ, **env},
                stdout=asyncio.subprocess.PIPE,
            )
            async with asyncio.timeout(60):
                said, _ = await starting.communicate()
            assert (starting.returncode, said.decode().strip()) == (0, "order/o-1")

            async def done() -> bool:
                query = "SELECT state = 'SUCCEEDED' FROM milepost.run WHERE saga = 'order' AND key = 'o-1'"
                return bool(await connection.fetchval(query))

            await until(done, within=60, what="the end of the run")
            tries = await connection.fetch("SELECT name, attempt FROM milepost.step ORDER BY n")
            assert [tuple(row) for row in tries] == [("charge", 1), ("ship", 1)]
            await process.stop()
    finally:
        await connection.close()
