"""Waiting for a condition with a deadline; tests never sleep instead."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def until(
    check: Callable[[], T | Awaitable[T]],
    *,
    within: float = 10.0,
    what: str = "the condition",
    every: float = 0.05,
) -> T:
    """Ask until the answer is true.

    Args:
        check: Synchronous or not; its first true answer is returned.
        within: Longest wait in seconds.
        what: Words for the failure.
        every: Seconds between two looks.

    Raises:
        AssertionError: When the time is over; shows the last answer.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within
    while True:
        found = check()
        answer = await found if inspect.isawaitable(found) else found
        if answer:
            return answer  # type: ignore[no-any-return]
        if loop.time() >= deadline:
            raise AssertionError(f"waited {within:g} s for {what}; last answer: {answer!r}")
        await asyncio.sleep(every)
