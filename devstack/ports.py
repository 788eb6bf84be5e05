"""Free ports and waiting.

Ports come from 15000–32000, below the range that systems hand out to outgoing connections. In that range, a
client that keeps dialling a dead server can be given the server's own port as its source and connect to
itself; the server could then never come back on its port.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from random import SystemRandom
from typing import Any, TypeVar

from .errors import DevstackError

T = TypeVar("T")

LOWEST, HIGHEST = 15_000, 32_000


def free_port() -> int:
    """Return a port on 127.0.0.1 that nobody listens on right now.

    Raises:
        DevstackError: 200 random ports in a row were taken.
    """
    dice = SystemRandom()
    for _ in range(200):
        port = dice.randrange(LOWEST, HIGHEST)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise DevstackError(f"No free port between {LOWEST} and {HIGHEST}.", "Stop servers you no longer need.")


def listens(port: int, host: str = "127.0.0.1") -> bool:
    """Tell whether something accepts TCP connections on that port (waits one second at most)."""
    try:
        with socket.create_connection((host, port), timeout=1):
            return True
    except OSError:
        return False


def wait_until(
    ready: Callable[[], bool], *, seconds: float, alive: Callable[[], bool] = lambda: True
) -> bool:
    """Poll a condition.

    Args:
        ready: the condition.
        seconds: how long to try.
        alive: when this turns false, waiting is given up at once.

    Returns:
        Whether the condition came true.
    """
    end = time.monotonic() + seconds
    while True:
        if ready():
            return True
        if time.monotonic() >= end or not alive():
            return False
        time.sleep(0.05)


def run_apart(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine to its end on a thread of its own, so that it also works under a running event loop.

    Args:
        work: makes the coroutine.

    Returns:
        What the coroutine returns; what it raises is raised.
    """
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(work())).result()
