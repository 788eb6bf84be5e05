"""A PostgreSQL primary with a streaming standby, both local, and before them an address that can be moved."""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg
from milepost.devstack.machine import silent
from milepost.devstack.postgres import Postgres
from milepost.devstack.postgres_program import binaries, run_as

from tests.support.waiting import until


@dataclass
class Door:
    """An address that leads to a server, to another one, or nowhere.

    Attributes:
        target: Port that it leads to; 0: nowhere.
    """

    target: int
    port: int = 0
    open_now: set[asyncio.StreamWriter] = field(default_factory=set)
    _server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def lead_to(self, target: int) -> None:
        """Cut every connection; new ones lead to another server."""
        self.target = target
        for writer in list(self.open_now):
            writer.transport.abort()

    async def close(self) -> None:
        """Stop listening."""
        self.lead_to(0)
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open_now.add(writer)
        there = None
        try:
            if self.target:
                back, there = await asyncio.open_connection("127.0.0.1", self.target)
                self.open_now.add(there)
                await asyncio.gather(_pass(reader, there), _pass(back, writer))
        except OSError:
            pass
        finally:
            for end in (writer, there):
                if end is not None:
                    self.open_now.discard(end)
                    end.transport.abort()


async def _pass(source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(65536):
            to.write(data)
            await to.drain()
    to.transport.abort()


@dataclass
class Pair:
    """A primary, its standby, the link between them, and the address that services know.

    Attributes:
        link: What the standby receives through.
        door: What services connect to.
    """

    primary: Postgres
    standby: Postgres
    link: Door
    door: Door

    def url(self, database: str) -> str:
        """Return the URL of a database through the address that can be moved."""
        return f"postgresql://postgres@127.0.0.1:{self.door.port}/{database}"

    async def caught_up(self) -> None:
        """Wait until the standby has replayed all that the primary has written."""
        written = await _value(self.primary, "SELECT pg_current_wal_flush_lsn()::text")

        async def there() -> bool:
            query = f"SELECT pg_last_wal_replay_lsn() >= '{written}'::pg_lsn"
            return bool(await _value(self.standby, query))

        await until(there, within=30, what="the standby to have caught up")

    async def fail_over(self) -> None:
        """The primary is gone at once; the standby is promoted, and takes its place."""
        self.door.lead_to(0)
        await asyncio.to_thread(self.primary.stop, "immediate")
        assert await _value(self.standby, "SELECT pg_promote()"), "the standby is promoted"
        self.door.lead_to(self.standby.port)


async def _value(server: Postgres, query: str) -> object:
    connection = await asyncpg.connect(server.url())
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


def _copy(primary: Postgres, folder: Path) -> None:
    """Copy a primary into a folder, as a standby begins."""
    owner = run_as()
    command = [str(binaries(silent) / "pg_basebackup"), "-h", "127.0.0.1", "-p", str(primary.port)]
    command += ["-U", "postgres", "-D", str(folder / "data"), "-R", "-X", "stream", "-c", "fast"]
    subprocess.run(
        command,
        check=True,
        capture_output=True,
        timeout=120,
        user=owner[0] if owner else None,
        group=owner[1] if owner else None,
    )


@asynccontextmanager
async def pair(*, synchronous: bool) -> AsyncIterator[Pair]:
    """Run both; with `synchronous` no commit is answered that the standby has not stored."""
    more = {"synchronous_standby_names": "*"} if synchronous else {}
    primary = Postgres(where="local")
    with tempfile.TemporaryDirectory(prefix="milepost-standby-", ignore_cleanup_errors=True) as place:
        folder = Path(place)
        folder.chmod(0o777)
        await asyncio.to_thread(primary.start)
        link, door = Door(primary.port), Door(primary.port)
        await link.start()
        await door.start()
        standby = Postgres(
            where="local",
            folder=folder,
            settings={
                "primary_conninfo": f"host=127.0.0.1 port={link.port} user=postgres application_name=standby"
            },
        )
        try:
            await asyncio.to_thread(_copy, primary, folder)
            await asyncio.to_thread(standby.start)
            both = Pair(primary, standby, link, door)
            await both.caught_up()
            for name, value in more.items():
                await _value(primary, f"ALTER SYSTEM SET {name} = '{value}'")
                await _value(primary, "SELECT pg_reload_conf()")
            yield both
        finally:
            await door.close()
            await link.close()
            for server in (standby, primary):
                await asyncio.to_thread(server.close)
