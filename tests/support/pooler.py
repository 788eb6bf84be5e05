"""PgBouncer in transaction mode before a database: every transaction may run on another server connection."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from milepost.devstack.ports import free_port, listens
from milepost.devstack.postgres_program import run_as

from tests.support.waiting import until


def _settings(url: str, port: int, folder: Path) -> str:
    parts = urlsplit(url)
    name = parts.path.lstrip("/")
    return "\n".join(
        [
            "[databases]",
            f"{name} = host={parts.hostname} port={parts.port} dbname={name} user={parts.username}",
            "[pgbouncer]",
            "listen_addr = 127.0.0.1",
            f"listen_port = {port}",
            "unix_socket_dir =",
            "auth_type = any",
            "pool_mode = transaction",
            "default_pool_size = 4",
            # Connections to the server are replaced all the time.
            "server_lifetime = 1",
            "server_idle_timeout = 1",
            "ignore_startup_parameters = extra_float_digits",
            f"logfile = {folder / 'log'}",
        ]
    )


@asynccontextmanager
async def pooled(url: str) -> AsyncIterator[str]:
    """Run PgBouncer before a database; yields the URL that goes through it. Skips where it is not installed."""
    program = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        pytest.skip("PgBouncer is not installed")
    with tempfile.TemporaryDirectory(prefix="milepost-pooler-", ignore_cleanup_errors=True) as place:
        folder, port, owner = Path(place), free_port(), run_as()
        folder.chmod(0o777)
        (folder / "pgbouncer.ini").write_text(_settings(url, port, folder))
        process = await asyncio.to_thread(
            subprocess.Popen,
            [program, "-q", str(folder / "pgbouncer.ini")],
            user=owner[0] if owner else None,
            group=owner[1] if owner else None,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            await until(
                lambda: listens(port) or process.poll() is not None, within=20, what="PgBouncer to listen"
            )
            assert process.poll() is None, (folder / "log").read_text()
            parts = urlsplit(url)
            yield url.replace(f"{parts.hostname}:{parts.port}", f"127.0.0.1:{port}")
        finally:
            process.kill()
            await asyncio.to_thread(process.wait)
