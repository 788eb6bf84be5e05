"""`milepost outbox`: how far the relay is behind."""

from __future__ import annotations

from .model import Lag
from .options import Globals
from .output import span
from .store import reading


async def show_outbox(given: Globals) -> None:
    """Print how many committed events the relay has not sent yet, and how old the oldest is."""
    async with reading(given.database_url()) as store:
        lag = await store.lag()
    given.out.item(
        lag=lag.rows,
        oldest_s=None if lag.oldest is None else round(lag.oldest.total_seconds(), 3),
        epoch=lag.epoch,
        leased=lag.leased,
    )
    given.out.say(outbox_words(lag))


def outbox_words(lag: Lag) -> str:
    """Say the state of the outbox in a line."""
    behind = "lag 0, nothing waits" if lag.oldest is None else f"lag {lag.rows}, oldest {span(lag.oldest)}"
    if lag.epoch is None:
        return f"{behind}; no relay has ever run here"
    return f"{behind}; relay epoch {lag.epoch}" + ("" if lag.leased else ", no relay runs now")
