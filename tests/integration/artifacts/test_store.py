"""The store of artifacts on both kinds of place: a folder, and a server that speaks S3."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from milepost import ArtifactChanged, ArtifactMissing, ArtifactStoreUnavailable, UsageError
from milepost.consumers.artifact_store import PART, ArtifactStore, open_store, require_store
from milepost.consumers.artifacts import Hashed, checked, pieces
from milepost.schemas.artifacts import Artifact
from milepost.schemas.ids import SystemIds

from tests.support.engine import settings_for
from tests.support.s3 import S3Server, s3_server

NOWHERE = "postgresql://nowhere"


def open_at(**more: Any) -> ArtifactStore:
    """Open a store by settings."""
    return require_store(settings_for(NOWHERE, **more))


@pytest.fixture(params=["folder", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ArtifactStore:
    """A new, empty store of each kind."""
    if request.param == "folder":
        return open_at(artifacts=(tmp_path / "kept here").as_uri())
    s3: S3Server = request.getfixturevalue("s3")
    return open_at(**s3.settings(secrets.token_hex(4)))


async def several(*parts: bytes, error: Exception | None = None) -> AsyncIterator[bytes]:
    """Give parts, and then fail if told so."""
    for part in parts:
        yield part
    if error is not None:
        raise error


def named(store: ArtifactStore) -> list[str]:
    """Return the names of all objects."""
    return sorted(o.location for page in store.objects() for o in page)


async def written(store: ArtifactStore, location: str, *parts: bytes) -> Artifact:
    """Write an object and return a reference to it."""
    source = Hashed(several(*parts))
    await store.put(location, source)
    return Artifact(
        run=SystemIds().new(),
        step="write",
        name="x",
        type="text/plain",
        size=source.size,
        sha256=source.hash.hexdigest(),
        location=location,
    )


async def read(store: ArtifactStore, reference: Artifact) -> bytes:
    """Read an object, checked."""
    return b"".join([piece async for piece in checked(store, reference)])


@pytest.mark.parametrize("size", [0, 1, 5_000_000, 3 * PART + 7])
async def test_what_is_written_is_read_back_whatever_its_size(store: ArtifactStore, size: int) -> None:
    data = secrets.token_bytes(size)
    halves = [part for part in (data[: size // 3], data[size // 3 :]) if part]
    made = await written(store, "report/r/write/1/pages/x.bin", *halves)
    assert (made.size, made.sha256) == (size, hashlib.sha256(data).hexdigest())
    assert await read(store, made) == data
    assert named(store) == ["report/r/write/1/pages/x.bin"]


async def test_an_upload_that_fails_half_way_leaves_nothing_under_its_name(store: ArtifactStore) -> None:
    part = secrets.token_bytes(PART + 1)
    with pytest.raises(RuntimeError, match="the model went away"):
        await store.put("a/b", several(part, part, error=RuntimeError("the model went away")))
    assert named(store) == []


async def test_what_lies_there_is_read_only_when_it_is_what_was_written(store: ArtifactStore) -> None:
    made = await written(store, "a/b", b"one", b"two")
    await written(store, "a/b", b"onetwO")
    with pytest.raises(ArtifactChanged, match="MP366"):
        await read(store, made)
    await written(store, "a/b", b"onetwo and more")
    with pytest.raises(ArtifactChanged, match="size over 6"):
        await read(store, made)
    await store.delete("a/b")
    await store.delete("a/b")
    with pytest.raises(ArtifactMissing, match="MP365"):
        await read(store, made)


async def test_a_store_that_is_away_says_so(tmp_path: Path) -> None:
    with s3_server() as server:
        store = open_at(**server.settings("x"))
        made = await written(store, "a/b", b"data")
    for call in (read(store, made), written(store, "c", b"d")):
        with pytest.raises(ArtifactStoreUnavailable, match="MP367") as caught:
            await call
        assert "\n" not in str(caught.value)
    with pytest.raises(ArtifactStoreUnavailable):
        named(store)


async def test_a_bucket_that_is_not_there_says_so(s3: S3Server) -> None:
    store = open_at(**{**s3.settings("x"), "artifacts": "s3://another/x"})
    with pytest.raises(ArtifactStoreUnavailable, match=r"MP367 .*(NoSuchBucket|404)"):
        await written(store, "a", b"b")


async def test_a_folder_that_cannot_be_made_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtifactStoreUnavailable, match="MP367"):
        open_at(artifacts=(tmp_path / "file" / "below").as_uri())


async def test_data_comes_as_bytes_as_a_file_and_piece_by_piece(tmp_path: Path) -> None:
    data = secrets.token_bytes(2_500_000)
    (tmp_path / "file").write_bytes(data)
    for form in (data, tmp_path / "file", several(data[:5], data[5:])):
        assert b"".join([piece async for piece in pieces(form, "artifact x")]) == data
    text: Any = "text"
    wrong: Any = several("text")  # type: ignore[arg-type]
    for form, words in ((text, "data is str"), (wrong, "gives str"), (tmp_path / "none", "cannot be read")):
        with pytest.raises(UsageError, match=f"MP364 .*{words}"):
            [piece async for piece in pieces(form, "artifact x")]


def test_without_a_setting_there_is_no_store() -> None:
    assert open_store(settings_for(NOWHERE)) is None
    with pytest.raises(UsageError, match="MP363"):
        require_store(settings_for(NOWHERE))
