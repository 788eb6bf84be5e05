"""How often somebody may ask, counted in this process."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from limits import RateLimitItem, parse
from limits.aio.storage import MemoryStorage
from limits.aio.strategies import FixedWindowRateLimiter

from ...schemas.ids import Clock
from .problems import Problem

if TYPE_CHECKING:
    from .settings import ConsoleSettings


class Rates:
    """Counts requests by identity and by address.

    Args:
        settings: How many are let through.
        clock: Says when the next is.
    """

    def __init__(self, settings: ConsoleSettings, clock: Clock) -> None:
        self._limiter = FixedWindowRateLimiter(MemoryStorage())
        self._clock = clock
        self._identity, self._address = parse(settings.rate), parse(settings.rate_address)
        self._sign_in = parse(settings.rate_sign_in)

    async def identity(self, name: str) -> None:
        """Count a request of an identity.

        Raises:
            Problem: 429, MP706.
        """
        await self._hit(self._identity, "identity", name)

    async def address(self, address: str) -> None:
        """Count a request from an address.

        Raises:
            Problem: 429, MP706.
        """
        await self._hit(self._address, "address", address)

    async def sign_in(self, address: str) -> None:
        """Count a try to say who one is.

        Raises:
            Problem: 429, MP706.
        """
        await self._hit(self._sign_in, "sign-in", address)

    async def _hit(self, item: RateLimitItem, kind: str, who: str) -> None:
        if not await self._limiter.hit(item, kind, who):
            raise await self._too_often(item, kind, who)

    async def _too_often(self, item: RateLimitItem, kind: str, who: str) -> Problem:
        reset = (await self._limiter.get_window_stats(item, kind, who)).reset_time
        wait = max(1, math.ceil(reset - self._clock.now().timestamp()))
        detail = f"More than {item.amount} requests in {item.get_expiry()} s. Try again in {wait} s."
        return Problem(429, "MP706", detail, headers={"Retry-After": str(wait)})
