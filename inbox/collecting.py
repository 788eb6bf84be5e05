"""Python's collector of cycles, kept out of the way while a batch is read."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Generator[None]:
    """Do not look for cycles in this block, which may not wait.

    The thousands of objects that records are read into have none, and live until their batch is done. The collector
    would look at them time and again, and every hundredth time at all that the process has.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
