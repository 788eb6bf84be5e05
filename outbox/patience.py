"""Waiting for servers that are away: with jitter, and without filling the log."""

from __future__ import annotations

import logging

from ..schemas.ids import Clock, Randomness

logger = logging.getLogger("milepost")


class Backoff:
    """Exponential backoff with full jitter.

    Args:
        first: Upper bound of the first delay, in seconds; doubles with each.
        cap: Largest bound, in seconds.

    Full jitter: https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
    """

    def __init__(self, randomness: Randomness, *, first: float = 0.1, cap: float = 5.0) -> None:
        self._randomness = randomness
        self._first = first
        self._cap = cap
        self._bound = first

    def next(self) -> float:
        """Return the next delay in seconds."""
        bound, self._bound = self._bound, min(self._cap, self._bound * 2)
        return bound * self._randomness.uniform()

    def reset(self) -> None:
        """Begin anew after a success."""
        self._bound = self._first


class Trouble:
    """What keeps the relay from working, said once a minute.

    Args:
        clock: For the minute, and for how long it has lasted.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: float | None = None
        self._said = float("-inf")
        self.text = ""

    def meet(self, text: str) -> None:
        """Take note of a failure."""
        now = self._clock.monotonic()
        self._since = now if self._since is None else self._since
        self.text = text
        if now - self._said >= 60.0:
            self._said = now
            logger.warning("%s", text)

    def over(self) -> None:
        """Take note that it works again."""
        if self._since is not None:
            logger.info("relay: works again after %.1f s", self.lasting())
        self._since, self.text, self._said = None, "", float("-inf")

    def lasting(self) -> float:
        """Seconds since the first failure of the present series; 0 without one."""
        return 0.0 if self._since is None else self._clock.monotonic() - self._since
