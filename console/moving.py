"""`milepost runs migrate`: open runs of older versions of a saga moved to a newer one, as its code says."""

from __future__ import annotations

from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

import typer

from ..consumers.app import Milepost
from ..consumers.engine import changes_of
from ..consumers.moving import Moved, Mover
from ..recovery.acting import Attempt, attempting
from ..recovery.permissions import Act
from ..sagas.saga import Saga
from ..schemas.errors import UsageError
from .application import load_app
from .findings import counted
from .options import Globals
from .problems import FINDINGS
from .store import changing
from .unpark import require_reason


async def migrate_runs(given: Globals, saga: str, to: int, *, dry_run: bool, reason: str | None) -> None:
    """Move what can move, and print one outcome for each run.

    Args:
        saga: Name of the saga.
        to: The version that the runs are to be of.
        dry_run: Only say what would become of them.
        reason: Why; needed unless `dry_run`.

    Raises:
        UsageError: MP601 for a saga or version that the application does not have, or without a reason.
        typer.Exit: 1 when some runs stay where they are.
    """
    service = load_app(given)
    target = _target(service, saga, to)
    if not dry_run:
        require_reason(reason or "")
    mover = Mover(changes_of(service), target, given.by(), (reason or "").strip(), dry_run=True)
    async with changing(given.database_url()) as connection, AsyncExitStack() as stack:
        if not dry_run:
            attempt = Attempt(
                act=Act.MIGRATE, name="run.migrate", reason=mover.reason, saga=saga, evidence={"to": to}
            )
            await stack.enter_async_context(attempting(connection, given.actor(), attempt))
            found = Counter([moved.outcome async for moved in mover.move_all(connection)])
            if found["movable"]:
                given.confirm(f"{counted(found['movable'], 'run')} would move to {target.title}. Go on?")
            mover = Mover(mover.changes, target, mover.by, mover.reason, dry_run=False)
        outcomes = Counter[str]()
        async for moved in mover.move_all(connection):
            _tell(given, moved, target)
            outcomes[moved.outcome] += 1
    _sum_up(given, outcomes, dry_run=dry_run)


def _target(service: Milepost, saga: str, to: int) -> Saga[Any]:
    found = [known for known in service.sagas if known.name == saga]
    target = next((known for known in found if known.version == to), None)
    if target is None:
        versions = ", ".join(sorted(known.title for known in found)) or "no saga of that name"
        raise UsageError(
            "MP601", f"--to {to}: this application does not have {saga} v{to}. It has: {versions}."
        )
    if not target.past.migrations:
        raise UsageError(
            "MP601",
            f"{target.title} says of no version how its runs may move: call migrate(old, input=..., steps=...) on it, "
            "after its flow.",
        )
    return target


def _tell(given: Globals, moved: Moved, target: Saga[Any]) -> None:
    given.out.item(
        run=moved.run,
        id=moved.run_id,
        **{"from": moved.version, "to": target.version},
        outcome=moved.outcome,
        why=moved.why or None,
    )
    if moved.outcome == "stays":
        given.out.say(f"{moved.run} stays on v{moved.version}: {moved.why}")


def _sum_up(given: Globals, outcomes: Counter[str], *, dry_run: bool) -> None:
    """Print the counts; what ended meanwhile counts as nothing."""
    all_of_them = outcomes["moved"] + outcomes["movable"] + outcomes["stays"]
    done = outcomes["movable"] if dry_run else outcomes["moved"]
    given.out.item(**{"movable" if dry_run else "moved": done}, of=all_of_them)
    given.out.say(f"{done} of {all_of_them} {'can move' if dry_run else 'moved'}")
    if outcomes["stays"]:
        raise typer.Exit(FINDINGS)
