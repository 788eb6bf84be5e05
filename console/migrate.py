"""`milepost migrate`."""

from __future__ import annotations

from ..streams.migrate import Migration, migrate
from .findings import counted
from .options import Globals


async def run_migrations(given: Globals, *, to: int | None, dry_run: bool) -> None:
    """Bring the database to this version of the schema, or say what would be done."""
    done = await migrate(given.database_url(), to=to, dry_run=dry_run)
    item = {"from": done.from_version, "to": done.to_version, "files": done.files, "dry_run": dry_run}
    given.out.item(**item)
    given.out.say(migration_words(done, dry_run=dry_run))


def migration_words(done: Migration, *, dry_run: bool) -> str:
    """Say what was done: "schema 3 → 4, 1 file"."""
    if not done.files:
        return f"schema {done.to_version}, nothing to do"
    amount = counted(len(done.files), "file")
    words = f"schema {done.from_version} → {done.to_version}, {amount}"
    return f"{words} (dry run, nothing was changed): {', '.join(done.files)}" if dry_run else words
