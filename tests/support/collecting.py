"""A pytest plugin: the root of the repository is the package under test, not a package of tests.

pytest imports the `__init__.py` of every package it walks through to a test, under a name made from the folder.
For the root that would load the package a second time under another name, with classes that are not the same
classes, or fail in a folder whose name is no Python name.
"""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_collect_directory(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Take the root as a plain folder; leave the others to pytest."""
    if path == parent.config.rootpath:
        return pytest.Dir.from_parent(parent, path=path)
    return None
