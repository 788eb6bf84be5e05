"""A pytest plugin: the order in which the workers of a parallel run take the files.

Whoever ends last decides how long a run takes, so the files that take longest come first and those of milliseconds
last. Tests that kill processes wait for most of their time, those that search compute: they take turns, so that at any
time some of the workers wait while others compute.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, zip_longest

import pytest

#: Folders and files that mostly wait for processes, leases and servers.
WAITING = ("tests/acceptance/", "tests/chaos/")
#: Folders and files that mostly compute, and long.
COMPUTING = (
    "tests/unit/sagas/test_reach.py",
    "tests/property/",
    "tests/plans/",
    "tests/typing/",
    "tests/contract/",
)
#: What comes after both; anything else comes last.
NEXT = ("tests/integration/", "tests/migration/")


def in_order(files: Iterable[str]) -> list[str]:
    """Return the files in the order in which they are to be taken.

    Args:
        files: paths from the root of the repository, with slashes.
    """
    known = sorted(set(files))
    turns = zip_longest(_under(WAITING, known), _under(COMPUTING, known))
    first = [file for file in chain.from_iterable(turns) if file is not None]
    then = _under(NEXT, known)
    return [*first, *then, *(file for file in known if file not in {*first, *then})]


def _under(places: tuple[str, ...], files: list[str]) -> list[str]:
    """The files under any of some places, place by place."""
    return [file for place in places for file in files if file.startswith(place)]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the files; tests of one file stay together, in their order."""
    place = {file: n for n, file in enumerate(in_order(_file(item) for item in items))}
    items.sort(key=lambda item: place[_file(item)])


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]
