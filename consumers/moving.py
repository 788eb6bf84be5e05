"""Moving open runs from one version of a saga to another: each in a transaction of its own, by compare-and-set."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

import asyncpg

from ..outbox.publish import publish_rows
from ..sagas.definition import Definition
from ..sagas.moving import Move, plan
from ..sagas.saga import Saga
from ..streams.queries import Queries
from .changes import Changes
from .store import Conflict, load_run

#: Runs looked up at once.
PAGE = 500


class Sql(Queries, file="moving.sql"):
    """Queries of moving."""

    open_of_others: str
    move_run: str
    rename_steps: str
    rename_waits: str
    settle_names: str
    settle_waits: str
    forget_handed: str


@dataclass(frozen=True, slots=True)
class Moved:
    """What became of one run.

    Attributes:
        outcome: moved; movable where it was only tried; stays; gone when it has ended, or was moved, meanwhile.
        why: Why it stays.
    """

    run_id: UUID
    run: str
    version: int
    outcome: Literal["moved", "movable", "stays", "gone"]
    why: str = ""


@dataclass(frozen=True, slots=True)
class Mover:
    """Moves the open runs of a saga to one of its versions.

    Args:
        changes: The service's.
        saga: The version that runs are to be of.
        by: Who wants it.
        reason: Why.
        dry_run: Decide, and change nothing.
    """

    changes: Changes
    saga: Saga[Any]
    by: str
    reason: str
    dry_run: bool

    async def move_all(self, connection: asyncpg.Connection[Any]) -> AsyncGenerator[Moved]:
        """Move what can move, one run after the other; what was moved is not listed again, so this can be repeated."""
        last = UUID(int=0)
        while True:
            rows = await connection.fetch(
                Sql.open_of_others, self.changes.service, self.saga.name, self.saga.version, last, PAGE
            )
            for row in rows:
                yield await self.move(
                    connection, row["id"], f"{self.saga.name}/{row['key']}", row["definition"]
                )
            if len(rows) < PAGE:
                return
            last = rows[-1]["id"]

    async def move(self, connection: asyncpg.Connection[Any], run_id: UUID, name: str, version: int) -> Moved:
        """Move one run, or say why it stays.

        Args:
            connection: Without an open transaction.
            name: "order/o-1", for the answer.
            version: The run's version when it was listed.
        """
        migration = self.saga.past.migrations.get(version)
        if migration is None:
            why = f"{self.saga.title} says nothing of v{version}: no migrate() leads from it"
            return Moved(run_id, name, version, "stays", why)
        while True:
            loaded = await load_run(connection, run_id)
            if loaded is None or loaded.run.wake_at is None or loaded.run.definition != version:
                return Moved(run_id, name, version, "gone")
            found = plan(migration, self.saga.definition, loaded.run, loaded.now, self.changes.limits)
            if isinstance(found, str):
                return Moved(run_id, name, version, "stays", found)
            if self.dry_run:
                return Moved(run_id, name, version, "movable")
            try:
                async with connection.transaction(isolation="read_committed"):
                    await self._store(connection, found, migration.old)
            except Conflict:
                continue
            return Moved(run_id, name, version, "moved")

    async def _store(self, connection: asyncpg.Connection[Any], move: Move, old: Definition) -> None:
        run, new = move.run, self.saga.definition
        renamed = {was: name for was, name in move.names.items() if was != name}
        stored = await connection.fetchval(
            Sql.move_run,
            run.id,
            run.version,
            run.definition,
            run.shape,
            run.policy,
            json.dumps(run.input, ensure_ascii=False),
            run.input_version,
            run.history_n,
            json.dumps({"from": old.version, "to": new.version, "steps": renamed, "by": self.by}),
            self.changes.ids.new(),
            self.by,
            self.reason,
            json.dumps({"definition": old.version, "shape": old.shape, "input": old.input.__name__}),
            json.dumps({"definition": new.version, "shape": new.shape, "input": new.input.__name__}),
        )
        if stored != 1:
            raise Conflict
        names = list(move.names)
        after = [move.names[name] for name in names]
        steps = [run.step(name) for name in after]
        queues = [step.queue if step is not None else "" for step in steps]
        wakes = [step.wake_at if step is not None else None for step in steps]
        # Two names may change places, and a key is checked row by row: first to names that nothing else has.
        await connection.execute(Sql.rename_steps, run.id, names, after, queues, wakes)
        await connection.execute(Sql.rename_waits, run.id, names, after)
        await connection.execute(Sql.settle_names, run.id)
        await connection.execute(Sql.settle_waits, run.id)
        await connection.execute(Sql.forget_handed, run.id)
        await publish_rows(connection, [self.changes.work_row(run, work) for work in move.work])
