"""What the local servers say when something is missing or wrong."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from milepost.devstack import cache, docker, kafka_jars
from milepost.devstack.errors import DevstackError
from milepost.devstack.kafka import Kafka
from milepost.devstack.postgres import Postgres
from milepost.devstack.stack import running

pytestmark = pytest.mark.usefixtures("devstack_data")


def program(folder: Path, name: str, text: str) -> None:
    """Write a shell script that stands in for a program."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_a_start_that_fails_shows_the_logs_last_lines(devstack_data: Path) -> None:
    server = Postgres(settings={"no_such_setting": "1"})
    with pytest.raises(DevstackError) as caught:
        server.start()
    assert 'unrecognized configuration parameter "no_such_setting"' in str(caught.value)
    assert "What to do" in str(caught.value)
    assert not server.alive()
    assert list(devstack_data.iterdir()) == []


def test_a_broker_that_cannot_run_shows_the_logs_last_lines(devstack_data: Path) -> None:
    if docker.answers():
        pytest.skip("the broker runs in a container")
    server = Kafka(settings={"authorizer.class.name": "no.such.Authorizer"})
    with pytest.raises(DevstackError, match=r"no\.such\.Authorizer"):
        server.start()
    assert list(devstack_data.iterdir()) == []


def test_old_java_is_named_with_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "bin", "java", "echo 'openjdk version \"11.0.2\" 2019-01-15' >&2")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(DevstackError, match=r"needs Java 17 or newer; .*java is version 11(.|\n)*JAVA_HOME"):
        Kafka(where="local").start()


def test_missing_java_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DevstackError, match=r"Java is not installed(.|\n)*MILEPOST_KAFKA"):
        Kafka(where="local").start()


def test_missing_maven_is_said_and_leaves_no_half_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "bin", "java", "echo 'openjdk version \"21\"' >&2")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("MILEPOST_CACHE", str(tmp_path / "cache"))
    with pytest.raises(DevstackError, match=r"Maven \(mvn\) is not installed"):
        Kafka(where="local").start()
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".lock"]


def test_failing_maven_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "bin", "mvn", "echo 'Could not resolve artifact'; exit 1")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    monkeypatch.setenv("MILEPOST_CACHE", str(tmp_path / "cache"))
    words: list[str] = []
    with pytest.raises(DevstackError, match="Could not resolve artifact"):
        kafka_jars.jars(words.append)
    assert "fetching" in words[0]


def test_a_variable_that_points_nowhere_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILEPOST_DATABASE_URL", "postgresql://postgres@127.0.0.1:1/postgres")
    with pytest.raises(DevstackError, match="MILEPOST_DATABASE_URL points at"), running():
        pass


def test_two_at_once_fill_a_cache_entry_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILEPOST_CACHE", str(tmp_path))
    inside, go_on = threading.Event(), threading.Event()
    fills: list[Path] = []

    def fill(folder: Path) -> None:
        fills.append(folder)
        inside.set()
        assert go_on.wait(30)
        (folder / "whole").touch()

    seen: list[bool] = []
    pair = [
        threading.Thread(target=lambda: seen.append((cache.filled("it-1", fill) / "whole").exists()))
        for _ in range(2)
    ]
    pair[0].start()
    assert inside.wait(30)
    pair[1].start()
    go_on.set()
    for thread in pair:
        thread.join(30)
    assert seen == [True, True]
    assert len(fills) == 1
