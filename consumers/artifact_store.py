"""The store of artifacts: a local folder, or a bucket that speaks S3, by obstore.

An object is there under its name as a whole or not at all: a bucket shows an upload when it is complete, and in a
folder it is written aside and then moved. What a killed process leaves has no name that anybody reads.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from ..sagas.artifacts import NO_STORE
from ..schemas.artifacts import ArtifactMissing, ArtifactStoreUnavailable
from ..schemas.errors import UsageError
from ..schemas.settings import Settings

if TYPE_CHECKING:
    from obstore.store import LocalStore, S3Store

#: Bytes per request of an upload in parts; S3 takes 10,000 parts, so an object may have 78 GiB.
PART = 8 * 1024 * 1024
#: Parts on their way at once, so that an upload holds 32 MiB at most.
AT_ONCE = 4
#: Least bytes per piece of a download.
PIECE = 1024 * 1024
_CONNECT = timedelta(seconds=5)
#: Longest time of one request; the timeout of the try ends it sooner.
_REQUEST = timedelta(minutes=10)
_RETRIES, _RETRY_WITHIN = 3, timedelta(seconds=20)


@dataclass(frozen=True, slots=True)
class Stored:
    """An object of the store.

    Attributes:
        location: From the store's root.
    """

    location: str
    size: int
    modified: datetime


@dataclass(frozen=True)
class ArtifactStore:
    """Puts, gets and lists objects.

    Args:
        url: The store's root, for people.
        store: By obstore.
        folder: The local folder, None for a bucket.
    """

    url: str
    store: LocalStore | S3Store
    folder: Path | None

    async def put(self, location: str, chunks: AsyncIterator[bytes]) -> None:
        """Write an object in pieces; when this returns it is there for good.

        Raises:
            ArtifactStoreUnavailable: MP367.
            Exception: What `chunks` raised.
        """
        import obstore

        source = _Source(chunks)
        try:
            await obstore.put_async(
                self.store,
                location,
                source,
                use_multipart=True,
                chunk_size=PART,
                max_concurrency=AT_ONCE,
            )
            if self.folder is not None:
                await asyncio.to_thread(_sync, self.folder, location)
        except Exception as error:
            if source.failed is not None:
                raise source.failed from None
            raise _unavailable(f"{self.url}/{location} cannot be written", error) from error

    async def get(self, location: str) -> AsyncIterator[bytes]:
        """Return an object in pieces.

        Raises:
            ArtifactMissing: MP365.
            ArtifactStoreUnavailable: MP367.
        """
        import obstore

        try:
            found = await obstore.get_async(self.store, location)
            async for piece in found.stream(min_chunk_size=PIECE):
                yield bytes(piece)
        except FileNotFoundError as error:
            raise ArtifactMissing(
                "MP365",
                f"artifact {location} is not in {self.url}. Bring the object back from a backup, or undo the run.",
            ) from error
        except Exception as error:
            raise _unavailable(f"{self.url}/{location} cannot be read", error) from error

    def objects(self) -> Iterator[list[Stored]]:
        """Return all objects by pages, in no order; of a folder also what a killed process left half written.

        Raises:
            ArtifactStoreUnavailable: MP367.
        """
        import obstore

        if self.folder is not None:
            yield from _files(self.folder)
            return
        try:
            for page in obstore.list(self.store):
                yield [Stored(o["path"], o["size"], o["last_modified"]) for o in page]
        except Exception as error:
            raise _unavailable(f"{self.url} cannot be listed", error) from error

    async def delete(self, location: str) -> None:
        """Remove an object; one that is gone is no error.

        Raises:
            ArtifactStoreUnavailable: MP367.
        """
        import obstore

        try:
            if self.folder is not None:
                await asyncio.to_thread((self.folder / location).unlink, missing_ok=True)
            else:
                await obstore.delete_async(self.store, location)
        except Exception as error:
            raise _unavailable(f"{self.url}/{location} cannot be removed", error) from error


class _Source:
    """The pieces of an upload, and what went wrong in getting them."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks
        self.failed: Exception | None = None

    def __aiter__(self) -> _Source:
        return self

    async def __anext__(self) -> bytes:
        try:
            return await anext(self._chunks)
        except StopAsyncIteration:
            raise
        except Exception as error:
            self.failed = error
            raise


def open_store(settings: Settings) -> ArtifactStore | None:
    """Open the store that the settings name; None where they name none.

    Raises:
        UsageError: MP363 when the package obstore is missing.
    """
    if settings.artifacts is None:
        return None
    try:
        from obstore.store import LocalStore, S3Store
    except ImportError as error:
        raise UsageError(
            "MP363", "artifacts: the package obstore is missing. Install milepost[artifacts]."
        ) from error
    parts = urlsplit(settings.artifacts)
    url = settings.artifacts.rstrip("/")
    if parts.scheme == "file":
        folder = Path(unquote(parts.path))
        try:
            return ArtifactStore(url, LocalStore(folder, mkdir=True), folder)
        except Exception as error:
            raise _unavailable(f"{url} cannot be made or opened", error) from error
    plain = (settings.artifacts_endpoint or "").startswith("http://")
    client: Any = {"connect_timeout": _CONNECT, "timeout": _REQUEST, "allow_http": plain}
    store = S3Store(
        parts.netloc,
        prefix=unquote(parts.path).strip("/") or None,
        config=_config(settings),
        client_options=client,
        retry_config={"max_retries": _RETRIES, "retry_timeout": _RETRY_WITHIN},
    )
    return ArtifactStore(url, store, None)


def require_store(settings: Settings) -> ArtifactStore:
    """Open the store that the settings name.

    Raises:
        UsageError: MP363 when they name none.
    """
    store = open_store(settings)
    if store is None:
        raise UsageError("MP363", NO_STORE)
    return store


def _config(settings: Settings) -> Any:
    """Return what the settings say of a bucket; the rest comes from AWS_* variables, or the machine's own role."""
    secret = settings.artifacts_secret_key
    said = {
        "endpoint": settings.artifacts_endpoint,
        "region": settings.artifacts_region,
        "access_key_id": settings.artifacts_access_key,
        "secret_access_key": None if secret is None else secret.get_secret_value(),
    }
    return {name: value for name, value in said.items() if value is not None}


def _unavailable(what: str, error: Exception) -> ArtifactStoreUnavailable:
    """Say what the store said, in one line: obstore's errors go on with a dump of their source."""
    words = (str(error).strip() or type(error).__name__).partition("\n")[0]
    return ArtifactStoreUnavailable(
        "MP367", f"artifacts: {what}: {words}. Look at MILEPOST_ARTIFACTS, its credentials and the store."
    )


def _sync(folder: Path, location: str) -> None:
    """Have a file and its names on disk before a checkpoint refers to it."""
    path = folder / location
    _flush(path)
    for parent in path.parents:
        _flush(parent)
        if parent == folder:
            return


def _flush(path: Path) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _files(folder: Path) -> Iterator[list[Stored]]:
    for place, _, names in os.walk(folder):
        page = []
        for name in names:
            path = Path(place) / name
            try:
                found = path.stat()
            except FileNotFoundError:  # moved or removed meanwhile
                continue
            modified = datetime.fromtimestamp(found.st_mtime, UTC)
            page.append(Stored(path.relative_to(folder).as_posix(), found.st_size, modified))
        if page:
            yield page
