"""How long the relay waits before it looks again: what a look costs is missing to those who write the rows."""

from __future__ import annotations

#: Rows a second up to which the wait is the short one, from which it is the long one, and both in seconds. A look, a
#: request and an answer cost about 3.5 ms of all processors together, for one row as for a hundred
#: (docs/performance.md); up to the first rate that is small beside a wait of 4 ms, and from the second rate on a wait
#: of 32 ms brings so many rows that it is small beside what writing them costs.
_SLOW, _FAST = 600.0, 1000.0
_SHORT, _LONG = 0.004, 0.032
#: After so many rows at once a look costs nothing to speak of.
_MANY = 256
#: Over how many seconds the rate is smoothed.
_MEMORY = 0.25


class Pace:
    """The wait between two looks at which rows were found, by how fast rows come.

    Args:
        now: Elapsed time in seconds.
    """

    def __init__(self, now: float) -> None:
        self._at = now
        self._rate = 0.0

    def gap(self, rows: int, behind: int, now: float) -> float:
        """Return the seconds to wait before the next look; none while there is a backlog or much to do.

        Args:
            rows: Rows that the look has brought.
            behind: Rows that it has seen beside these.
            now: Elapsed time in seconds, by the same clock as before.
        """
        elapsed = max(now - self._at, 0.001)
        self._at = now
        self._rate += min(1.0, elapsed / _MEMORY) * (rows / elapsed - self._rate)
        if behind or rows >= _MANY:
            return 0.0
        share = (self._rate - _SLOW) / (_FAST - _SLOW)
        return _SHORT + (_LONG - _SHORT) * min(1.0, max(0.0, share))
