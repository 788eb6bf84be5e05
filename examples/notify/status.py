"""Where notifications stand, in the words of the house: `python -m milepost.examples.notify.status [ID]`.

It needs the database only: the runs come from `milepost runs list --json`, the provider's ids from the service's table.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from milepost import Settings
from rich.console import Console
from rich.table import Table
from sqlalchemy import select
from sqlalchemy.ext.asyncio import create_async_engine

from ..stage.processes import milepost
from .tables import NotificationRow

#: What each word means, in the order in which a notification may come to it.
WORDS: Mapping[str, str] = {
    "QUEUED": "taken, nothing done yet",
    "SENDING": "the provider is being asked to send it, perhaps not for the first time",
    "CHECKING": "nobody knows whether it was sent; the provider is asked before anything is repeated",
    "SENT": "the provider has it; its report is awaited",
    "DELIVERED": "the provider says that it arrived",
    "BOUNCED": "the provider says that it came back",
    "FAILED": "it was not sent, and will not be",
    "NEEDS A PERSON": "no machine may decide: see `milepost worklist`",
}
#: States of a run in which nothing more happens by itself.
ENDED = frozenset({"SUCCEEDED", "FAILED", "CANCELLED", "COMPENSATED", "EXPIRED", "MANUAL_REQUIRED"})
_BEFORE_SENT = frozenset({"send", "note_sent"})


@dataclass(frozen=True, slots=True)
class Job:
    """A notification as people see it.

    Attributes:
        word: One of WORDS.
        message_id: The provider's id, '' as long as it is not known.
        reason: The code of a failure, '' without one.
        ended: Whether nothing more happens by itself.
    """

    id: str
    word: str
    message_id: str = ""
    reason: str = ""
    ended: bool = False


def job(run: Mapping[str, Any], noted: str, message_id: str) -> Job:
    """Say where one stands.

    Args:
        run: The run as `milepost runs list --json` tells it.
        noted: State of the service's own row.
        message_id: The provider's id in that row, '' for none.
    """
    state = str(run["state"])
    failed = state in ENDED and state != "SUCCEEDED"
    return Job(
        id=str(run["run"]).partition("/")[2],
        word=_word(state, str(run["step"] or ""), str(run["step_state"] or ""), noted),
        message_id=message_id,
        reason=str(run["code"] or run["cause"] or "") if failed else "",
        ended=state in ENDED,
    )


def _word(state: str, step: str, step_state: str, noted: str) -> str:
    if state == "MANUAL_REQUIRED":
        return "NEEDS A PERSON"
    if state in ENDED:
        return noted if state == "SUCCEEDED" else "FAILED"
    if step in _BEFORE_SENT:
        doubtful = step == "send" and step_state in ("UNKNOWN", "RECONCILING")
        return "CHECKING" if doubtful else "SENDING"
    return "SENT" if step in ("reported", "record") else "QUEUED"


async def jobs(env: Mapping[str, str], *, limit: int = 1000) -> list[Job]:
    """Return every notification, the youngest first.

    Args:
        env: MILEPOST_DATABASE_URL says where.
        limit: At most so many.
    """
    words = ("runs", "list", "--saga", "notification", "--limit", str(limit), "--json")
    runs = [json.loads(line) for line in (await milepost(env, *words)).splitlines()]
    url = Settings.model_validate({"database_url": env["MILEPOST_DATABASE_URL"]}).sqlalchemy_url
    engine = create_async_engine(url)
    try:
        async with engine.connect() as connection:
            columns = (NotificationRow.id, NotificationRow.state, NotificationRow.message_id)
            rows = {
                id: (state, number or "") for id, state, number in await connection.execute(select(*columns))
            }
    finally:
        await engine.dispose()
    return [job(run, *rows[run["run"].partition("/")[2]]) for run in runs]


def table(found: Iterable[Job]) -> Table:
    """Draw notifications for people."""
    drawn = Table("notification", "stands at", "provider's id", "reason", "that is", box=None, pad_edge=False)
    for one in found:
        drawn.add_row(one.id, one.word, one.message_id, one.reason, WORDS[one.word])
    return drawn


def main(words: Sequence[str] | None = None) -> int:
    """Print the notifications, or one; exit status 1 when it is not there."""
    parser = argparse.ArgumentParser(prog="status", description="Where notifications stand.")
    parser.add_argument("id", nargs="?", default="", help="only this one")
    only = parser.parse_args(words).id
    found = [one for one in asyncio.run(jobs(os.environ)) if only in ("", one.id)]
    Console().print(table(found) if found else f"no notification {only}".rstrip())
    return 0 if found or not only else 1


if __name__ == "__main__":
    sys.exit(main())
