"""Examples as a user runs them: programs of their own, which leave no process behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil

from tests.support.servers import DatabaseServer, MessageServer


def shell(postgres: DatabaseServer, kafka: MessageServer) -> dict[str, str]:
    """Return the environment of a shell in which `milepost dev` has been read."""
    return {
        **os.environ,
        "MILEPOST_DATABASE_URL": postgres.url(),
        "MILEPOST_KAFKA": kafka.bootstrap,
        "PYTHONUNBUFFERED": "1",
    }


def python(module: str, *words: str) -> list[str]:
    """Return the command that runs a module."""
    return [sys.executable, "-m", module, *words]


def finished(
    module: str, *words: str, where: Path, env: dict[str, str], within: float
) -> subprocess.CompletedProcess[str]:
    """Run a module to its end; within so many seconds."""
    return subprocess.run(
        python(module, *words),
        cwd=where,
        env=env,
        capture_output=True,
        text=True,
        timeout=within,
        check=False,
    )


def left_behind(folder: Path) -> list[int]:
    """Return the ids of processes that still run in a folder or below it."""
    found = []
    for process in psutil.process_iter(["cwd"]):
        cwd = process.info["cwd"]
        if cwd and Path(cwd).is_relative_to(folder):
            found.append(process.pid)
    return found
