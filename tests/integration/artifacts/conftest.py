"""A store that speaks S3, for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.s3 import S3Server, s3_server


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    """Run a server for the tests of a module."""
    with s3_server() as server:
        yield server
