"""`milepost outbox`: where the relay stands, how far it is behind, and what it has put aside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer
from rich.text import Text

from ..streams.queries import Queries
from .findings import counted
from .letters import judge_unsent, parked_words
from .model import Lag, Unsent
from .options import Globals
from .output import span
from .problems import FINDINGS
from .store import Sql as StoreSql
from .store import reading

#: Longest position that people are shown: it names every transaction that runs.
_WIDE = 48


class Sql(Queries, file="outbox.sql"):
    """Queries about the relay."""

    relay: str
    holds: str
    first_letters: str
    find_letter: str
    choose_letters: str
    letter_state: str


async def show_outbox(given: Globals) -> None:
    """Print lag, leader, position, holds, parked events and days of partitions.

    Raises:
        typer.Exit: 1 when events are parked.
    """
    async with reading(given.database_url()) as store:
        lag, unsent = await store.lag(), await store.unsent()
        relay = await store.fetchrow(Sql.relay)
        holds = await store.fetch(Sql.holds)
        first = {(row["topic"], row["code"]): row for row in await store.fetch(Sql.first_letters)}
        ahead = {row["parent"]: row["days"] for row in await store.fetch(StoreSql.partitions_ahead)}
    numbers = [first[letters.topic, letters.code] for letters in unsent]
    _tell_programs(
        given, lag=lag, relay=relay, holds=holds, unsent=unsent, numbers=numbers, days=ahead["outbox"]
    )
    given.out.say(outbox_words(lag))
    for text in [*_relay_words(relay), *_hold_words(holds), f"partitions: {ahead['outbox']} days ahead"]:
        given.out.say(f"  {text}")
    for letters, row, check in zip(unsent, numbers, judge_unsent(unsent), strict=True):
        given.out.hanging(Text(f"{check.code} ", style="bold red"), parked_words(letters))
        given.out.hanging(Text("      "), _number_words(letters, row))
        given.out.hanging(Text("      "), f"What to do: {check.fix}")
    if unsent:
        raise typer.Exit(FINDINGS)


def outbox_words(lag: Lag) -> str:
    """Say the state of the outbox in a line."""
    behind = "lag 0, nothing waits" if lag.oldest is None else f"lag {lag.rows}, oldest {span(lag.oldest)}"
    if lag.epoch is None:
        return f"{behind}; no relay has ever run here"
    return f"{behind}; relay epoch {lag.epoch}" + ("" if lag.leased else ", no relay runs now")


def _tell_programs(
    given: Globals,
    *,
    lag: Lag,
    relay: Any,
    holds: Sequence[Any],
    unsent: Sequence[Unsent],
    numbers: Sequence[Any],
    days: int,
) -> None:
    given.out.item(
        lag=lag.rows,
        oldest_s=None if lag.oldest is None else round(lag.oldest.total_seconds(), 3),
        epoch=lag.epoch,
        leased=lag.leased,
        leader=relay["owner"] if relay["leads"] else None,
        position=relay["position"],
        position_age_s=None if relay["since"] is None else round(relay["since"].total_seconds(), 3),
        restored_copy=relay["at_home"] is False,
        holds=[
            {
                "scope": hold["scope"],
                "topic": hold["topic"],
                "amount": hold["amount"],
                "reason": hold["reason"],
            }
            for hold in holds
        ],
        parked=[
            {
                "topic": letters.topic,
                "code": letters.code,
                "amount": letters.amount,
                "oldest_s": round(letters.oldest.total_seconds(), 3),
                "first": row["numbers"],
                "asked": row["asked"],
            }
            for letters, row in zip(unsent, numbers, strict=True)
        ],
        partition_days=days,
    )


def _relay_words(relay: Any) -> list[str]:
    leader = f"leader: {relay['owner']}" if relay["leads"] else "leader: none"
    if relay["position"] is None:
        return [leader, "position: none stored yet"]
    position = relay["position"] if len(relay["position"]) <= _WIDE else f"{relay['position'][:_WIDE]}…"
    words = [leader, f"position: {position}, stored {span(relay['since'])} ago"]
    if not relay["at_home"]:
        words.append("MP411 this is a restored copy: nothing is sent until `milepost outbox rebaseline`")
    return words


def _hold_words(holds: Sequence[Any]) -> list[str]:
    return [
        f"held: topic {hold['topic']} for {span(hold['oldest'])}"
        if hold["scope"] == "relay:topic"
        else f"held: {counted(hold['amount'], 'key')} of topic {hold['topic']}, longest {span(hold['oldest'])}"
        for hold in holds
    ]


def _number_words(letters: Unsent, row: Any) -> str:
    shown = ", ".join(str(number) for number in row["numbers"])
    more = ", …" if letters.amount > len(row["numbers"]) else ""
    asked = f"; {row['asked']} asked for" if row["asked"] else ""
    return f"Numbers: {shown}{more}{asked}"
