"""`milepost runs artifacts` and `milepost artifacts orphans`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import typer
from rich.text import Text

from ..consumers.artifact_store import ArtifactStore, Stored, require_store
from ..consumers.artifacts import checked
from ..recovery.acting import Attempt, attempting
from ..recovery.permissions import Act
from ..schemas.artifacts import Artifact, ArtifactChanged, ArtifactMissing
from ..schemas.settings import Settings
from ..streams.queries import Queries
from .application import optional_app
from .listing import Entry
from .model import RunDetail, run_reference
from .options import Globals
from .output import clean, column, span
from .problems import FINDINGS
from .store import changing, reading
from .unpark import require_reason


class Sql(Queries, file="artifacts.sql"):
    """Queries of these commands."""

    artifacts_of: str
    recorded: str
    under_way: str
    clock: str
    audit_removal: str


@dataclass(frozen=True, slots=True)
class Row:
    """A recorded artifact.

    Attributes:
        found: What a look at the store found: "ok", ARTIFACT_CHANGED or ARTIFACT_MISSING; None where nobody looked.
        against: What another run has under the same step and name: same, different, only here or only there.
    """

    row: asyncpg.Record
    found: str | None = None
    against: str | None = None

    @property
    def step(self) -> str:
        """The step with its iteration, as people write it."""
        iteration = self.row["iteration"]
        return f"{self.row['step']}#{iteration}" if iteration else str(self.row["step"])

    @property
    def item(self) -> dict[str, object]:
        """As --json prints it."""
        names = ("step", "iteration", "name", "type", "size", "sha256", "location", "created_at")
        more = {"found": self.found, "against": self.against}
        return {name: self.row[name] for name in names} | {k: v for k, v in more.items() if v is not None}


def settings_of(given: Globals) -> Settings:
    """Return the application's settings where one is named, else those of the environment."""
    service = optional_app(given)
    if service is not None:
        return service.settings
    given.database_url()
    given.to_environment()
    return Settings.from_env()


async def list_artifacts(given: Globals, reference: str, *, verify: bool, against: str | None) -> None:
    """Print what a run's steps have made; with `verify` each is read again and its hash compared.

    Raises:
        UsageError: MP363 with `verify` where no store is set.
        typer.Exit: 1 when something is missing, changed or, compared with another run, different.
    """
    async with reading(given.database_url()) as store:
        run = await store.run(await store.find(run_reference(reference)), history=False)
        rows = [Row(row) for row in await store.fetch(Sql.artifacts_of, run.id)]
        if against is not None:
            other = await store.find(run_reference(against))
            rows = list(compared(rows, await store.fetch(Sql.artifacts_of, other)))
    if verify:
        kept = require_store(settings_of(given))
        rows = [Row(row.row, await look(kept, row.row), row.against) for row in rows]
    _print(given, run, rows)
    if any(row.found not in {None, "ok"} or row.against not in {None, "same"} for row in rows):
        raise typer.Exit(FINDINGS)


def compared(rows: Sequence[Row], others: Iterable[asyncpg.Record]) -> Iterable[Row]:
    """Hold the artifacts of one run against another's, by step and name, and say where the hashes differ."""

    def key(row: asyncpg.Record) -> tuple[str, str, str]:
        return row["step"], row["iteration"], row["name"]

    there = {key(row): row for row in others}
    for row in rows:
        other = there.pop(key(row.row), None)
        words = "only here" if other is None else "same" if _same(other, row.row) else "different"
        yield Row(row.row, row.found, words)
    for missing in there.values():
        yield Row(missing, None, "only there")


def _same(one: asyncpg.Record, other: asyncpg.Record) -> bool:
    return bool(one["sha256"] == other["sha256"])


async def look(store: ArtifactStore, row: asyncpg.Record) -> str:
    """Read an artifact and compare its hash; returns "ok", ARTIFACT_CHANGED or ARTIFACT_MISSING.

    Raises:
        ArtifactStoreUnavailable: MP367.
    """
    names = ("step", "iteration", "name", "type", "size", "sha256", "location")
    reference = Artifact(run=row["run_id"], **{name: row[name] for name in names})
    try:
        async for _ in checked(store, reference):
            pass
    except ArtifactMissing:
        return "ARTIFACT_MISSING"
    except ArtifactChanged:
        return "ARTIFACT_CHANGED"
    return "ok"


def _print(given: Globals, run: RunDetail, rows: Sequence[Row]) -> None:
    out = given.out
    for row in rows:
        out.item(run=run.run, id=run.id, **row.item)
    if not rows:
        out.say(f"{run.run}: its steps have made no artifacts")
        return
    heads = [column("step"), column("name"), column("size", right=True), column("sha256"), column("type")]
    heads += [column("found"), column("against"), column("location")]
    out.listing(heads, [Entry(_cells(row)) for row in rows])


def _cells(row: Row) -> list[Text]:
    plain = (
        row.step,
        row.row["name"],
        in_bytes(row.row["size"]),
        f"{row.row['sha256'][:12]}…",
        row.row["type"],
    )
    found = Text(row.found or "", style="" if row.found in {None, "ok"} else "bold red")
    against = Text(row.against or "", style="" if row.against in {None, "same"} else "yellow")
    return [
        *(Text(clean(cell)) for cell in plain),
        found,
        against,
        Text(clean(row.row["location"]), style="dim"),
    ]


def in_bytes(size: int) -> str:
    """Write a size for people: 812 B, 1.4 kB, 3.0 GB."""
    value, units = float(size), ["B", "kB", "MB", "GB", "TB"]
    while value >= 1000 and len(units) > 1:
        value /= 1000
        units.pop(0)
    return f"{size} B" if units[0] == "B" else f"{value:.1f} {units[0]}"


# --- what nothing refers to -----------------------------------------------------------------------------


async def list_orphans(given: Globals, *, older: timedelta, delete: bool, reason: str) -> None:
    """Print objects that no checkpoint recorded, and remove them when asked.

    Raises:
        UsageError: MP363 where no store is set, MP601 when they are to be removed without a reason.
        typer.Exit: 1 when there are some and they stay.
    """
    if delete:
        require_reason(reason)
    store = require_store(settings_of(given))
    async with changing(given.database_url()) as connection:
        now = await connection.fetchval(Sql.clock)
        found = [o async for o in orphans(connection, store) if now - o.modified >= older]
        size = sum(o.size for o in found)
        _print_orphans(given, store, found, now, older)
        if not found:
            return
        if not delete:
            given.out.note(
                f"{len(found)} objects, {in_bytes(size)}; nothing refers to them. --delete removes them."
            )
            raise typer.Exit(FINDINGS)
        given.confirm(f"Remove {len(found)} objects ({in_bytes(size)}) from {store.url}?")
        actor, evidence = given.actor(), {"objects": len(found), "bytes": size}
        attempt = Attempt(
            act=Act.REMOVE_ARTIFACTS, name="artifacts.remove_orphans", reason=reason, evidence=evidence
        )
        async with attempting(connection, actor, attempt):
            for o in found:
                await store.delete(o.location)
            await connection.execute(Sql.audit_removal, actor.name, reason, len(found), size)
    given.out.note(f"{len(found)} objects removed")


def _print_orphans(
    given: Globals, store: ArtifactStore, found: Sequence[Stored], now: datetime, older: timedelta
) -> None:
    out = given.out
    for o in found:
        out.item(location=o.location, size=o.size, modified=o.modified)
    heads = [column("size", right=True), column("age", right=True), column("location")]
    cells = [(in_bytes(o.size), span(now - o.modified), clean(o.location)) for o in found]
    out.listing(heads, [Entry([Text(cell) for cell in row]) for row in cells])
    if not found:
        out.say(f"{store.url}: no object older than {span(older)} is without a step that recorded it")


async def orphans(database: asyncpg.Connection[Any], store: ArtifactStore) -> AsyncGenerator[Stored]:
    """Find objects in folders of runs that no row names and that no try under way may still record.

    The store is looked at first and the database then, so what is recorded meanwhile is seen.
    """
    for page in store.objects():
        ours = {o: place for o in page if (place := _place(o.location)) is not None}
        runs = list({run for run, _, _ in ours.values()})
        if not runs:
            continue
        recorded = {row["location"] for row in await database.fetch(Sql.recorded, runs)}
        busy = {
            (row["run_id"], row["place"], row["fence"]) for row in await database.fetch(Sql.under_way, runs)
        }
        for o, place in ours.items():
            if o.location not in recorded and place not in busy:
                yield o


def _place(location: str) -> tuple[UUID, str, int] | None:
    """Return run, step and fence of an object's name as `location_of` makes it; None for one that is not ours."""
    parts = location.split("/", 4)
    if len(parts) != 5 or not parts[3].isdigit():
        return None
    try:
        return UUID(parts[1]), parts[2], int(parts[3])
    except ValueError:
        return None
