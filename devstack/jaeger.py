"""Jaeger for looking at traces: in Docker where an engine answers, else a program that ``build()`` made.

The module that ``build()`` compiles has no web page; its traces are read through the query API
(``/api/services``, ``/api/traces?service=…``). The Docker image has both.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any, Literal

from . import docker
from .cache import cache_folder, filled
from .errors import DevstackError, output_lines
from .given import jaeger_answers
from .machine import Machine, Say, shown, silent
from .ports import free_port, wait_until
from .process import Process, data_folder
from .server import Server

IMAGE = "jaegertracing/all-in-one:1.76.0"
MODULE = "github.com/jaegertracing/jaeger/cmd/jaeger"
VERSION = "v1.76.0"
ENTRY = f"jaeger-{VERSION}"
ADVICE = (
    "start Docker, or let MILEPOST_JAEGER and OTEL_EXPORTER_OTLP_ENDPOINT point at a running one, or build it"
    " once with `make jaeger` (needs Go, takes some minutes)."
)


def build(say: Say = shown) -> Path:
    """Build Jaeger with Go into the cache, unless it is there. Takes about four minutes the first time.

    Args:
        say: receives progress lines.

    Returns:
        The program.

    Raises:
        DevstackError: Go is missing or the build failed; its words are in it.
    """

    def fill(folder: Path) -> None:
        go = shutil.which("go")
        if go is None:
            raise DevstackError("Go is not installed; it builds Jaeger once.", f"install Go, or {ADVICE}")
        say(f"Jaeger: building {VERSION} with Go, once (some minutes)")
        module = folder / "module"
        module.mkdir()
        tool = f"{MODULE}@{VERSION}"
        _run([go, "mod", "init", "milepost/jaeger"], module)
        _run([go, "get", "-tool", tool], module)
        _run([go, "build", "-o", str(folder / "jaeger"), MODULE], module)
        shutil.rmtree(module)

    return filled(ENTRY, fill) / "jaeger"


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise DevstackError(f"{' '.join(command[:3])} failed.", ADVICE, output_lines(done))


def jaeger_settings(spans: int, query: int, other: int) -> dict[str, Any]:
    """Return Jaeger's settings (YAML takes JSON): OTLP over HTTP in, memory, query API out.

    Args:
        spans: port for OTLP.
        query: port of the query API.
        other: port of the query API over gRPC, which cannot be switched off.
    """
    host = "127.0.0.1"
    storage = {"backends": {"kept": {"memory": {"max_traces": 100_000}}}}
    query_api = {
        "storage": {"traces": "kept"},
        "http": {"endpoint": f"{host}:{query}"},
        "grpc": {"endpoint": f"{host}:{other}"},
    }
    pipeline = {"receivers": ["otlp"], "processors": ["batch"], "exporters": ["jaeger_storage_exporter"]}
    return {
        "service": {
            "extensions": ["jaeger_storage", "jaeger_query"],
            "pipelines": {"traces": pipeline},
            "telemetry": {"metrics": {"level": "none"}, "logs": {"level": "warn"}},
        },
        "extensions": {"jaeger_storage": storage, "jaeger_query": query_api},
        "receivers": {"otlp": {"protocols": {"http": {"endpoint": f"{host}:{spans}"}}}},
        "processors": {"batch": {"timeout": "200ms"}},
        "exporters": {"jaeger_storage_exporter": {"trace_storage": "kept"}},
    }


class Jaeger(Server):
    """One Jaeger that keeps traces in memory.

    Args:
        where: "docker" or "local"; None takes Docker when an engine answers.
        detached: it shall outlive this process.
        say: receives progress lines.
    """

    name = "Jaeger"
    advice = ADVICE
    closing = signal.SIGKILL  # it keeps nothing, and its orderly end takes ten seconds

    def __init__(
        self,
        *,
        where: Literal["docker", "local"] | None = None,
        detached: bool = False,
        say: Say = silent,
    ) -> None:
        super().__init__(detached=detached, say=say)
        self._where = where
        self._spans = 0
        self._query = 0

    @property
    def otlp(self) -> str:
        """Where spans go: the base URL for OTLP over HTTP (exporters add ``/v1/traces``)."""
        return f"http://127.0.0.1:{self._spans}"

    @property
    def query(self) -> str:
        """The base URL of the query API."""
        return f"http://127.0.0.1:{self._query}"

    def stop(self) -> None:
        """Stop it; its traces are gone."""
        if self._machine is not None:
            self._machine.stop(self.closing)

    def _answers(self, machine: Machine) -> bool:
        return wait_until(lambda: jaeger_answers(self.query), seconds=60, alive=machine.alive)

    def _make(self) -> Machine:
        self._spans, self._query = free_port(), free_port()
        if (self._where or ("docker" if docker.answers() else "local")) == "docker":
            self._say(f"Jaeger: starting {IMAGE} in Docker")
            ports = {4318: self._spans, 16686: self._query}
            env = {"COLLECTOR_OTLP_HTTP_HOST_PORT": "0.0.0.0:4318"}
            return docker.Container(IMAGE, ports=ports, env=env, detached=self._detached)
        program = cache_folder() / ENTRY / "jaeger"
        if not program.exists():
            raise DevstackError("Jaeger has not been built and no Docker engine answers.", ADVICE)
        self._say("Jaeger: starting the one built with Go")
        folder, ours = data_folder("jaeger")
        settings = folder / "jaeger.yaml"
        settings.write_text(json.dumps(jaeger_settings(self._spans, self._query, free_port())))
        command = [str(program), "--config", str(settings)]
        return Process(command, folder=folder, sign=self.closing, detached=self._detached, remove=ours)
