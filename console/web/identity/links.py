"""The link that `milepost console` prints: it signs in whoever started it, once."""

from __future__ import annotations

from collections.abc import Iterable

from ....schemas.ids import Clock
from .signing import digest_of, new_secret

#: How long it can be followed, in seconds.
LASTS = 300.0


class Links:
    """Links of this process that nobody has followed yet.

    Args:
        clock: Says when they are over.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._open: dict[bytes, tuple[str, tuple[str, ...], float]] = {}

    def make(self, name: str, roles: Iterable[str] = ()) -> str:
        """Return the secret of a new link for a person.

        Args:
            roles: Those that the person claims, for approvals that ask for one.
        """
        secret = new_secret()
        self._open[digest_of(secret)] = (name, tuple(sorted(roles)), self._clock.monotonic() + LASTS)
        return secret

    def take(self, secret: str) -> tuple[str, tuple[str, ...]] | None:
        """Return whose link this is and the roles, and forget it; None for one that is unknown, used or over."""
        found = self._open.pop(digest_of(secret), None)
        if found is None or self._clock.monotonic() > found[2]:
            return None
        return found[:2]
