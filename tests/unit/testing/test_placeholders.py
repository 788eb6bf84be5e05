"""The plugin's placeholders: never a server, and never taken for one."""

from __future__ import annotations

import pytest
from milepost import Settings
from milepost.devstack import given
from milepost.testing import plugin, reporting


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin without the variables, and end with what was there before."""
    for name in ("MILEPOST_DATABASE_URL", "MILEPOST_KAFKA"):
        monkeypatch.setenv(name, "noted, so that it is taken back")
        monkeypatch.delenv(name)


def test_settings_can_be_read_with_nothing_set() -> None:
    plugin.pytest_configure()
    settings = Settings.from_env()
    assert settings.dsn == reporting.PLACEHOLDER_DATABASE_URL
    assert settings.kafka == reporting.PLACEHOLDER_KAFKA


def test_what_is_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILEPOST_KAFKA", "127.0.0.1:9092")
    plugin.pytest_load_initial_conftests()
    assert Settings.from_env().kafka == "127.0.0.1:9092"
    assert Settings.from_env().dsn == reporting.PLACEHOLDER_DATABASE_URL


def test_local_servers_are_started_as_if_nothing_were_set() -> None:
    plugin.pytest_configure()
    assert given.database() is None
    assert given.kafka() is None
