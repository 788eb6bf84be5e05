"""A server as a Docker container."""

from __future__ import annotations

import functools
import importlib
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .errors import DevstackError
from .machine import Record

SWITCH = "MILEPOST_DEVSTACK_DOCKER"


@functools.cache
def answers() -> bool:
    """Tell whether a Docker engine answers (asked once per process; MILEPOST_DEVSTACK_DOCKER=no says no)."""
    if os.environ.get(SWITCH, "").lower() in {"no", "false", "0"}:
        return False
    try:
        client = _client()
    except Exception:  # no package, no socket, wrong settings: each means there is no engine for us
        return False
    try:
        return bool(client.ping())
    except Exception:
        return False
    finally:
        client.close()


def _engine() -> Any:
    """Return Docker's Python package; it comes with testcontainers, which is optional."""
    return importlib.import_module("docker")


def _client() -> Any:
    if "DOCKER_HOST" not in os.environ and not Path("/var/run/docker.sock").exists():
        raise FileNotFoundError("no Docker socket")
    return _engine().from_env(timeout=5)


def remove(container: str) -> bool:
    """Remove a container by its id.

    Returns:
        Whether it was there.
    """
    engine = _engine()
    client = engine.from_env(timeout=60)
    try:
        client.containers.get(container).remove(force=True, v=True)
    except engine.errors.NotFound:
        return False
    finally:
        client.close()
    return True


def runs(container: str) -> bool:
    """Tell whether a container of that id runs."""
    try:
        client = _client()
        try:
            return bool(client.containers.get(container).status == "running")
        finally:
            client.close()
    except Exception:
        return False


class Container:
    """A container with fixed host ports on 127.0.0.1.

    Args:
        image: image name with tag.
        ports: container port -> host port.
        env: environment variables.
        command: replaces the image's command.
        detached: it shall outlive us; else testcontainers' reaper removes it when we are gone.
    """

    def __init__(
        self,
        image: str,
        *,
        ports: Mapping[int, int],
        env: Mapping[str, str],
        command: Sequence[str] = (),
        detached: bool = False,
    ) -> None:
        self._image = image
        self._ports = ports
        self._env = env
        self._command = list(command)
        self._detached = detached
        self._container: Any = None

    def start(self) -> None:
        """Create the container, or start it again.

        Raises:
            DevstackError: the engine refused.
        """
        try:
            if self._container is None:
                self._container = self._create()
            elif not self.alive():
                self._container.start()
        except Exception as error:
            raise DevstackError(
                f"Docker did not start {self._image}: {error}",
                f"check `docker pull {self._image}`, or set {SWITCH}=no to do without Docker.",
                str(error),
            ) from error

    def _create(self) -> Any:
        from testcontainers.core.config import testcontainers_config  # noqa: PLC0415 - optional package
        from testcontainers.core.container import DockerContainer  # noqa: PLC0415

        before = testcontainers_config.ryuk_disabled
        testcontainers_config.ryuk_disabled = before or self._detached
        try:
            made = DockerContainer(self._image, env=dict(self._env))
            if self._command:
                made.with_command(self._command)
            ports: dict[str, Any] = made.ports
            ports.update({f"{inside}/tcp": ("127.0.0.1", outside) for inside, outside in self._ports.items()})
            return made.start().get_wrapped_container()
        finally:
            testcontainers_config.ryuk_disabled = before

    def stop(self, sign: int, seconds: float = 20.0) -> None:
        """Send the signal, then SIGKILL after so many seconds."""
        if not self.alive():
            return
        self.send(sign)
        end = time.monotonic() + seconds
        while self.alive():
            if time.monotonic() > end:
                self._container.kill()
                end = time.monotonic() + seconds
            time.sleep(0.05)

    def send(self, sign: int) -> None:
        """Send a signal to the container's first process."""
        if self._container is not None:
            self._container.kill(signal=int(sign))

    def alive(self) -> bool:
        """Tell whether the container runs."""
        if self._container is None:
            return False
        self._container.reload()
        return bool(self._container.status == "running")

    def tail(self) -> str:
        """Return the last lines of its log."""
        if self._container is None:
            return ""
        text = self._container.logs(tail=20).decode("utf-8", "replace")
        return "\n".join(f"    {line}" for line in text.splitlines())

    def remove(self) -> None:
        """Remove the container and its volumes."""
        if self._container is not None:
            self._container.remove(force=True, v=True)
            self._container = None

    def record(self) -> Record:
        """Return what ends it later."""
        return Record(container=self._container.id if self._container else "")
