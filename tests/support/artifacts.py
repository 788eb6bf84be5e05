"""A reference to an artifact, for tests."""

from __future__ import annotations

from uuid import UUID

from milepost import Artifact

RUN = UUID(int=7)
MADE = Artifact(
    run=RUN,
    step="write",
    name="report.md",
    type="text/markdown",
    size=3,
    sha256="a" * 64,
    location="report/x/write/1/report.md",
)
