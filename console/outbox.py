"""`milepost outbox`: how far the relay is behind."""

from __future__ import annotations

import typer
from rich.text import Text

from .letters import judge_unsent, parked_words
from .model import Lag
from .options import Globals
from .output import span
from .problems import FINDINGS
from .store import reading


async def show_outbox(given: Globals) -> None:
    """Print how many committed events the relay has not sent yet, how old the oldest is, and what is parked.

    Raises:
        typer.Exit: 1 when events are parked.
    """
    async with reading(given.database_url()) as store:
        lag, unsent = await store.lag(), await store.unsent()
    given.out.item(
        lag=lag.rows,
        oldest_s=None if lag.oldest is None else round(lag.oldest.total_seconds(), 3),
        epoch=lag.epoch,
        leased=lag.leased,
        parked=[
            {
                "topic": u.topic,
                "code": u.code,
                "amount": u.amount,
                "oldest_s": round(u.oldest.total_seconds(), 3),
            }
            for u in unsent
        ],
    )
    given.out.say(outbox_words(lag))
    for letters, check in zip(unsent, judge_unsent(unsent), strict=True):
        given.out.hanging(Text(f"{check.code} ", style="bold red"), parked_words(letters))
        given.out.hanging(Text("      "), f"What to do: {check.fix}")
    if unsent:
        raise typer.Exit(FINDINGS)


def outbox_words(lag: Lag) -> str:
    """Say the state of the outbox in a line."""
    behind = "lag 0, nothing waits" if lag.oldest is None else f"lag {lag.rows}, oldest {span(lag.oldest)}"
    if lag.epoch is None:
        return f"{behind}; no relay has ever run here"
    return f"{behind}; relay epoch {lag.epoch}" + ("" if lag.leased else ", no relay runs now")
