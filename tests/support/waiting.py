"""Waiting for a condition with a deadline; tests never sleep instead."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

T = TypeVar("T")


@overload
async def until(
    check: Callable[[], Awaitable[T | None]], *, within: float = ..., what: str = ..., every: float = ...
) -> T: ...
@overload
async def until(check: Callable[[], T], *, within: float = ..., what: str = ..., every: float = ...) -> T: ...
async def until(
    check: Callable[[], Any],
    *,
    within: float = 10.0,
    what: str = "the condition",
    every: float = 0.05,
) -> Any:
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
            return answer
        if loop.time() >= deadline:
            raise AssertionError(f"waited {within:g} s for {what}; last answer: {answer!r}")
        await asyncio.sleep(every)
