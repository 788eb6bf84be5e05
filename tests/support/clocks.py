"""Processes whose wall clock is wrong, as the system tells it to them: by libfaketime, which answers in libc's place.

Time that passes (CLOCK_MONOTONIC) is left alone, as on a machine whose clock is only set wrong.
"""

from __future__ import annotations

import importlib.util
import platform
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest


def skewed(by: timedelta) -> dict[str, str]:
    """Return the environment of a process whose clock is off by so much.

    Skips the test on a platform for which there is no libfaketime to be had.
    """
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        pytest.skip("libfaketime is there for Linux on x86-64")
    found = importlib.util.find_spec("libfaketime")
    assert found is not None and found.origin is not None, "make this environment with `make venv`"
    library = Path(found.origin).parent / "vendor" / "libfaketime" / "src" / "libfaketime.so.1"
    return {
        "LD_PRELOAD": str(library),
        "FAKETIME": f"{by.total_seconds():+.0f}",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }


def off_by(env: dict[str, str]) -> timedelta:
    """Return how wrong the clock of a process with that environment is."""
    said = subprocess.run(
        [sys.executable, "-c", "import time; print(time.time())"],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    return timedelta(seconds=float(said.stdout) - time.time())
