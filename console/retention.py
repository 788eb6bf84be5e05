"""`milepost retention`: how long each kind is kept, when it was last walked, and what would go now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from ..consumers.ageing import OWNED, PARTITIONED
from ..consumers.ageing import Sql as AgeingSql
from ..consumers.clearing import CLEARED
from ..consumers.memory import shorter_than_runs, written
from ..consumers.retention import POLICIES, Kind
from ..schemas.errors import MilepostError
from ..schemas.settings import Settings
from ..streams.queries import Queries
from .application import app_name, load_app
from .findings import counted
from .options import Globals
from .output import column, span
from .store import Store, reading

#: Rows are counted up to here: the point is whether there is something to go, and about how much.
MOST = 1_000_000


class Sql(Queries, file="retention.sql"):
    """Queries of this command."""

    walks: str
    bound: str
    count_inbox: str
    count_signals: str
    count_letters: str
    count_operations: str
    count_webhooks: str
    count_replays: str
    count_participants: str
    count_runs: str
    count_requests: str
    count_reconciliations: str
    count_artifacts: str


COUNTS: Mapping[Kind, str] = {
    "inbox": Sql.count_inbox,
    "signals": Sql.count_signals,
    "letters": Sql.count_letters,
    "operations": Sql.count_operations,
    "webhooks": Sql.count_webhooks,
    "replays": Sql.count_replays,
    "participants": Sql.count_participants,
    "runs": Sql.count_runs,
    "requests": Sql.count_requests,
    "reconciliations": Sql.count_reconciliations,
    "artifacts": Sql.count_artifacts,
}


@dataclass(frozen=True, slots=True)
class Line:
    """One kind.

    Attributes:
        keep: How long it is kept.
        due: Rows, or months, that would go now.
        held: Months that are old enough and stay, because a run that is kept has rows in them.
        walked: How long ago it was last walked; None for never.
    """

    kind: Kind
    keep: timedelta
    due: int
    held: int = 0
    walked: timedelta | None = None
    below: datetime | None = None

    @property
    def words(self) -> str:
        """What would go, for people."""
        if self.kind not in PARTITIONED:
            return f"{self.due}{'+' if self.due >= MOST else ''}"
        held = f"; {counted(self.held, 'month')} kept for runs" if self.held else ""
        return f"{counted(self.due, 'month')}{held}"


async def show_retention(given: Globals) -> None:
    """Print a line per kind; nothing is removed.

    Raises:
        StartError: MP203 when a setting is wrong.
    """
    settings = _settings(given)
    async with reading(given.database_url()) as store:
        lines = await lines_of(store, settings)
    out = given.out
    for line in lines:
        out.item(
            kind=line.kind,
            keep_s=line.keep.total_seconds(),
            due=line.due,
            held=line.held,
            walked=line.walked,
            purged_below=line.below,
        )
    columns = [column("kind"), column("kept"), column("would go now", right=True), column("last walk")]
    out.table(
        columns,
        [
            (
                line.kind,
                "until it expires" if line.kind == "operations" else written(line.keep),
                line.words,
                "never" if line.walked is None else f"{span(line.walked)} ago",
            )
            for line in lines
        ],
    )
    for refusal in shorter_than_runs(settings):
        out.note(f"{refusal.code} {refusal.text}")


async def lines_of(store: Store, settings: Settings) -> Sequence[Line]:
    """Return a line per kind."""
    walks = {row["kind"]: row for row in await store.fetch(Sql.walks)}
    lines: list[Line] = []
    cleared = {} if settings.artifacts is None else CLEARED
    for kind, policy in {**POLICIES, **OWNED, **cleared}.items():
        keep = policy.keep(settings)
        bound = (await store.fetchrow(Sql.bound, keep))[0]
        due = (await store.fetchrow(COUNTS[kind], bound, MOST))[0]
        lines.append(Line(kind, keep, due, 0, *_walk(walks.get(kind))))
    for kind, of in PARTITIONED.items():
        bound = (await store.fetchrow(Sql.bound, of(settings)))[0]
        needed = [
            await _needed(store, kind, row["name"])
            for row in await store.fetch(AgeingSql.old_partitions, kind, bound)
        ]
        held = sum(needed)
        lines.append(Line(kind, of(settings), len(needed) - held, held, *_walk(walks.get(kind))))
    return lines


def _walk(row: Any) -> tuple[timedelta | None, datetime | None]:
    return (None, None) if row is None else (row["now"] - row["at"], row["purged_below"])


async def _needed(store: Store, kind: Kind, name: str) -> bool:
    question = (await store.fetchrow(AgeingSql.write_needed, kind, name))[0]
    return bool((await store.fetchrow(question))[0])


def _settings(given: Globals) -> Settings:
    """Return the application's own settings where there is one, else those of the environment."""
    given.database_url()  # says what is wrong with it as every command does
    given.to_environment()
    if app_name(given) is not None:
        try:
            return load_app(given).settings
        except MilepostError as error:
            given.out.note(f"without the application: {error.code} {error.text}")
    return Settings.from_env()
