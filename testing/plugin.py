"""The pytest plugin: what `milepost.testing.open_kit` needs from a test run. Installed with milepost, always on.

- Sets MILEPOST_DATABASE_URL and MILEPOST_KAFKA to placeholders where they are missing, so that an application's module
  can be imported without servers; `open_kit` puts the throwaway database in their place.
- Stops the PostgreSQL that kits started, at the end of the run.
- Adds the runs' timelines to the report of a failing test that uses a kit.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator

import pytest

from . import reporting

_PLACEHOLDERS = {
    "MILEPOST_DATABASE_URL": reporting.PLACEHOLDER_DATABASE_URL,
    "MILEPOST_KAFKA": reporting.PLACEHOLDER_KAFKA,
}


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Set the placeholders before a conftest imports the application."""
    _set_placeholders()


@pytest.hookimpl(tryfirst=True)
def pytest_configure() -> None:
    """Set them when the plugin was named by `-p` or `pytest_plugins`."""
    _set_placeholders()


def pytest_unconfigure() -> None:
    """Stop what kits started and take the placeholders away."""
    postgres = sys.modules.get(f"{__package__}.postgres")
    if postgres is not None:
        postgres.stop()
    for name, value in _PLACEHOLDERS.items():
        if os.environ.get(name) == value:
            del os.environ[name]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the timelines of a failing test's kits, unless its own error shows one."""
    report = yield
    if report.when == "call":
        told = call.excinfo is not None and call.excinfo.errisinstance(reporting.NotReached)
        if report.failed and not told and (text := reporting.take()):
            report.sections.append(("milepost kit", text))
        reporting.forget()
    return report


def _set_placeholders() -> None:
    for name, value in _PLACEHOLDERS.items():
        os.environ.setdefault(name, value)
