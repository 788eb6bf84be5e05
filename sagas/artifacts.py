"""What a step, a probe or an undo can do with artifacts; where they lie is handed in."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol, TypeAlias

from ..schemas.artifacts import Artifact
from ..schemas.errors import UsageError

Data: TypeAlias = bytes | Path | AsyncIterator[bytes]

#: Most bytes that `read_artifact` takes into memory, unless it is told otherwise.
IN_MEMORY = 64 * 1024 * 1024


class Artifacts(Protocol):
    """Writes and reads artifacts for one try of a step."""

    async def put(self, name: str, data: Data, type: str) -> Artifact:
        """Write one; see `HasArtifacts.artifact`."""

    async def read(self, reference: Artifact, most: int) -> bytes:
        """Return its data; see `HasArtifacts.read_artifact`."""

    async def save(self, reference: Artifact, path: Path) -> None:
        """Copy it into a file; see `HasArtifacts.save_artifact`."""


class HasArtifacts:
    """The part of `Context` that has to do with artifacts."""

    _artifacts: Artifacts | None = None

    async def artifact(self, name: str, data: Data, *, type: str = "application/octet-stream") -> Artifact:
        """Write data beside the run, and return a reference for the step's result.

        It is recorded together with the step's checkpoint, or not at all; what a try leaves that failed is an object
        that nothing refers to. A try never writes where another one has, and the name appears in the store only when
        all of it is there.

        Args:
            name: Unique within the try, such as "report.md" or "pages/1.html".
            data: Bytes, a file, or an async iterator of bytes, which is never held in memory as a whole.
            type: Media type.

        Raises:
            UsageError: MP363 when the service has no store, MP364 for a name or data that does not fit.
            ArtifactStoreUnavailable: MP367 when the store does not take it.
        """
        return await self._of_call().put(name, data, type)

    async def read_artifact(self, reference: Artifact, *, max_bytes: int = IN_MEMORY) -> bytes:
        """Return the data of an artifact of this tenant, checked against its size and SHA-256.

        Args:
            reference: From this step, the result of another one, or the input.
            max_bytes: More is refused; `save_artifact` takes any size.

        Raises:
            ArtifactMissing: MP365, it is not recorded, or its object is gone.
            ArtifactChanged: MP366, what lies there is something else.
            ArtifactStoreUnavailable: MP367 when the store does not answer.
            UsageError: MP363 as `artifact`; MP369 when it is larger than `max_bytes`.
        """
        return await self._of_call().read(reference, max_bytes)

    async def save_artifact(self, reference: Artifact, path: Path) -> None:
        """Copy an artifact of this tenant into a file, which appears when all of it is there and has been checked.

        Args:
            reference: As `read_artifact`.
            path: The file; one that is there is replaced.

        Raises:
            ArtifactMissing: As `read_artifact`, and so are the others; the file is then as it was.
        """
        await self._of_call().save(reference, path)

    def _of_call(self) -> Artifacts:
        if self._artifacts is None:
            raise UsageError("MP363", NO_STORE)
        return self._artifacts


#: What to do where a service has no store.
NO_STORE = (
    "artifacts: MILEPOST_ARTIFACTS is not set, so there is no store. Set it to a folder that all workers share "
    "(file:///var/lib/shop/artifacts) or a bucket (s3://bucket/prefix)."
)
