"""A server that speaks S3: moto's, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.error import URLError

from milepost.devstack.ports import free_port

BUCKET = "artifacts"
#: moto asks for some signature, and takes any.
KEY, SECRET = "key", "secret-of-the-store"


@dataclass(frozen=True)
class S3Server:
    """A running server with one bucket."""

    endpoint: str
    process: subprocess.Popen[bytes]

    def settings(self, prefix: str) -> dict[str, str]:
        """Return what the settings have to say, by field."""
        return {
            "artifacts": f"s3://{BUCKET}/{prefix}",
            "artifacts_endpoint": self.endpoint,
            "artifacts_region": "us-east-1",
            "artifacts_access_key": KEY,
            "artifacts_secret_key": SECRET,
        }

    def env(self, prefix: str) -> dict[str, str]:
        """Return the same for a process's environment."""
        return {f"MILEPOST_{name.upper()}": value for name, value in self.settings(prefix).items()}


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """Run a server as long as the block lasts."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        server = S3Server(f"http://127.0.0.1:{port}", process)
        _make_bucket(server)
        yield server
    finally:
        process.kill()
        process.wait()


def _make_bucket(server: S3Server) -> None:
    until = time.monotonic() + 60
    while True:
        try:
            request = urllib.request.Request(f"{server.endpoint}/{BUCKET}", method="PUT")
            urllib.request.urlopen(request, timeout=5).close()
            return
        except (URLError, OSError):
            assert server.process.poll() is None, "moto ended"
            if time.monotonic() > until:
                raise
            time.sleep(0.1)
