"""Artifacts of one try: written under its fence, recorded with the step's checkpoint, read back with their hash."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg

from ..sagas.artifacts import Data
from ..sagas.model import Run, Step
from ..schemas.artifacts import Artifact, ArtifactChanged, ArtifactMissing, location_of, name_problem
from ..schemas.errors import UsageError
from ..schemas.settings import Settings
from ..schemas.texts import unstorable
from ..streams.queries import Queries
from .artifact_store import PIECE, ArtifactStore, open_store

_LONGEST_TYPE = 200


class Sql(Queries, file="artifacts.sql"):
    """Queries of this module."""

    insert_artifacts: str
    find_artifact: str


@dataclass(frozen=True)
class Keeping:
    """Where a process keeps artifacts.

    Args:
        store: Their store.
        pool: Where they are recorded.
    """

    store: ArtifactStore
    pool: asyncpg.Pool[Any]


def keeping_of(settings: Settings, pool: asyncpg.Pool[Any]) -> Keeping | None:
    """Return where a process with these settings keeps artifacts; None for nowhere.

    Raises:
        UsageError: MP363 when the package obstore is missing.
        ArtifactStoreUnavailable: MP367 when the folder cannot be made.
    """
    store = open_store(settings)
    return None if store is None else Keeping(store, pool)


class CallArtifacts:
    """What one try of a step writes and reads.

    Args:
        keeping: Where.
        run: The run as claimed.
        step: The claimed row.
        check: Raises LeaseLost when this process may no longer act.
    """

    def __init__(self, keeping: Keeping, run: Run, step: Step, check: Callable[[], None]) -> None:
        self._keeping = keeping
        self._run = run
        self._step = step
        self._check = check
        self._taken: set[str] = set()
        self.made: list[Artifact] = []

    async def put(self, name: str, data: Data, type: str) -> Artifact:
        """Write one; see `Context.artifact`."""
        self._refuse(name, type)
        self._check()
        step = self._step
        location = location_of(
            self._run.saga,
            self._run.id,
            step.name,
            iteration=step.iteration,
            fence=step.fence,
            name=name,
        )
        source = Hashed(pieces(data, f"artifact {name}"))
        self._taken.add(name)
        try:
            await self._keeping.store.put(location, source)
        except BaseException:
            self._taken.discard(name)
            raise
        made = Artifact(
            run=self._run.id,
            step=step.name,
            iteration=step.iteration,
            name=name,
            type=type,
            size=source.size,
            sha256=source.hash.hexdigest(),
            location=location,
        )
        self.made.append(made)
        return made

    def _refuse(self, name: str, type: str) -> None:
        problem = name_problem(name)
        if problem:
            raise UsageError(
                "MP364", f"artifact {name!r}: its name {problem}. Choose a plain one: report.md."
            )
        if name in self._taken:
            raise UsageError(
                "MP364",
                f"artifact {name!r}: {self._step.name} makes two of that name in one try. Give each its own name.",
            )
        if not type or len(type) > _LONGEST_TYPE or unstorable(type):
            raise UsageError(
                "MP364", f"artifact {name!r}: type={type!r} is no media type, such as text/plain."
            )

    async def read(self, reference: Artifact, most: int) -> bytes:
        """Return its data; see `Context.read_artifact`."""
        if reference.size > most:
            raise UsageError(
                "MP369",
                f"artifact {reference.name} of {reference.step} has {reference.size} bytes, and max_bytes is {most}. "
                "Copy it into a file with save_artifact, or allow more.",
            )
        found = bytearray()
        async for piece in self._checked(reference):
            found += piece
        return bytes(found)

    async def save(self, reference: Artifact, path: Path) -> None:
        """Copy it into a file; see `Context.save_artifact`."""
        aside = path.with_name(f".{path.name}.{self._run.id}.{self._step.fence}")
        try:
            file = await asyncio.to_thread(aside.open, "wb")
            with contextlib.closing(file):
                async for piece in self._checked(reference):
                    await asyncio.to_thread(file.write, piece)
            await asyncio.to_thread(os.replace, aside, path)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise

    async def _checked(self, reference: Artifact) -> AsyncIterator[bytes]:
        self._check()
        if reference not in self.made:
            await require_recorded(self._keeping.pool, self._run.tenant, reference)
        async for piece in checked(self._keeping.store, reference):
            yield piece


async def require_recorded(
    connection: asyncpg.Pool[Any] | asyncpg.Connection[Any], tenant: str, reference: Artifact
) -> None:
    """Refuse a reference that no checkpoint of this tenant recorded, whoever made it up.

    Raises:
        ArtifactMissing: MP365.
        ArtifactChanged: MP366 when another content is recorded.
    """
    row = await connection.fetchrow(
        Sql.find_artifact, tenant, reference.run, reference.step, reference.iteration, reference.name
    )
    place = f"artifact {reference.name} of {reference.step} of run {reference.run}"
    if row is None:
        raise ArtifactMissing(
            "MP365",
            f"{place} is not recorded for this tenant: no step has finished with it, or it is no longer kept.",
        )
    if (row["location"], row["sha256"], row["size"]) != (
        reference.location,
        bytes.fromhex(reference.sha256),
        reference.size,
    ):
        raise ArtifactChanged(
            "MP366", f"{place} is recorded with another content or place than the reference says."
        )


async def checked(store: ArtifactStore, reference: Artifact) -> AsyncIterator[bytes]:
    """Return the pieces of an artifact; the last one comes only when size and SHA-256 are right.

    Raises:
        ArtifactMissing: MP365.
        ArtifactChanged: MP366.
        ArtifactStoreUnavailable: MP367.
    """
    hash_, size, held = hashlib.sha256(), 0, b""
    async for piece in store.get(reference.location):
        hash_.update(piece)
        size += len(piece)
        if size > reference.size:
            break
        if held:
            yield held
        held = piece
    if size != reference.size or hash_.hexdigest() != reference.sha256:
        found = f"size {'over ' if size > reference.size else ''}{min(size, reference.size)}"
        raise ArtifactChanged(
            "MP366",
            f"artifact {reference.location} is not what was written: {found} and SHA-256 {hash_.hexdigest()[:12]}…, "
            f"not {reference.size} and {reference.sha256[:12]}…. Bring it back from a backup, or undo the run.",
        )
    if held:
        yield held


class Hashed:
    """Pieces on their way, with their hash and size.

    Args:
        chunks: The pieces.
    """

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks
        self.hash = hashlib.sha256()
        self.size = 0

    def __aiter__(self) -> Hashed:
        return self

    async def __anext__(self) -> bytes:
        piece = await anext(self._chunks)
        self.hash.update(piece)
        self.size += len(piece)
        return piece


async def pieces(data: Data, what: str) -> AsyncIterator[bytes]:
    """Return data in pieces, whatever form it has.

    Raises:
        UsageError: MP364 for something else, or a file that cannot be read.
    """
    if isinstance(data, bytes | bytearray | memoryview):
        whole = memoryview(data)
        for start in range(0, len(whole), PIECE):
            yield bytes(whole[start : start + PIECE])
    elif isinstance(data, Path):
        try:
            file = await asyncio.to_thread(data.open, "rb")
        except OSError as error:
            raise UsageError("MP364", f"{what}: {data} cannot be read: {error}.") from error
        with contextlib.closing(file):
            while piece := await asyncio.to_thread(file.read, PIECE):
                yield piece
    elif hasattr(data, "__aiter__"):
        async for gathered in _gathered(data, what):
            yield gathered
    else:
        raise UsageError(
            "MP364",
            f"{what}: data is {type(data).__name__}, not bytes, a Path or an async iterator of bytes. "
            "Encode text first.",
        )


async def _gathered(data: AsyncIterator[bytes], what: str) -> AsyncIterator[bytes]:
    """Put small pieces together: handing one to the store costs tens of microseconds."""
    held = bytearray()
    async for piece in data:
        if not isinstance(piece, bytes | bytearray | memoryview):
            raise UsageError("MP364", f"{what}: its iterator gives {type(piece).__name__}, not bytes.")
        held += piece
        if len(held) >= PIECE:
            yield bytes(held)
            held.clear()
    if held:
        yield bytes(held)


async def record(connection: asyncpg.Connection[Any], tenant: str, artifacts: Iterable[Artifact]) -> None:
    """Record what a step has made, in the transaction of its checkpoint."""
    rows = [
        (a.run, a.step, a.iteration, a.name, a.type, a.location, bytes.fromhex(a.sha256), a.size)
        for a in artifacts
    ]
    await connection.execute(Sql.insert_artifacts, tenant, *map(list, zip(*rows, strict=True)))
