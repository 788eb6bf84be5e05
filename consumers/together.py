"""A batch of changes in one transaction: all are loaded in one statement, decided, and stored in one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import asyncpg

from ..outbox.model import OutboxRow
from .batching import ToStore, as_read, is_plain
from .changes import Change, Changes, FactOf, InlineClaim
from .store import is_empty, loaded
from .store_many import Sql, load_rows, lock_free, store_decisions


@dataclass(eq=False)
class Asked:
    """A change that somebody waits for.

    Attributes:
        decided: What a batch decided, when it is to be stored alone.
    """

    run_id: UUID
    fact: FactOf
    emitted: Sequence[OutboxRow]
    inline: InlineClaim | None
    answer: asyncio.Future[Change | None]
    decided: Change | None = None


@dataclass
class Done:
    """What came of a batch, valid once its transaction has committed.

    Attributes:
        answers: What was changed, or needed no change.
        left: What is to be done alone.
    """

    answers: list[tuple[Asked, Change | None]] = field(default_factory=list)
    left: list[Asked] = field(default_factory=list)


async def change_many(connection: asyncpg.Connection[Any], changes: Changes, batch: Sequence[Asked]) -> Done:
    """Change distinct runs.

    Args:
        connection: In a transaction of the batch's own.
        batch: Sorted by run.
    """
    await connection.execute(Sql.many_by_index)
    rows = await load_rows(connection, [asked.run_id for asked in batch])
    done = Done()
    plain: list[tuple[Asked, Change, ToStore]] = []
    for asked in batch:
        try:
            change = _decided(changes, asked, rows.get(asked.run_id))
            if change is None or is_empty(change.decision):
                done.answers.append((asked, change))
            elif is_plain(change.decision):
                messages = changes.messages(change.decision, asked.emitted)
                plain.append((asked, change, ToStore(change.before.run, change.decision, messages)))
            else:
                asked.decided = change
                done.left.append(asked)
        except Exception:  # it raises again where it is done alone, and is answered there
            done.left.append(asked)
    if plain:
        stored = await _stored(connection, changes, [one for _, _, one in plain])
        done.answers.extend((asked, change) for asked, change, _ in plain if asked.run_id in stored)
        done.left.extend(asked for asked, _, _ in plain if asked.run_id not in stored)
    return done


def _decided(changes: Changes, asked: Asked, row: asyncpg.Record | None) -> Change | None:
    if row is None:
        return None
    before = loaded(row)
    decision = changes.decide(before, asked.fact, asked.inline)
    return None if decision is None else Change(before, decision)


async def _stored(
    connection: asyncpg.Connection[Any], changes: Changes, many: Sequence[ToStore]
) -> set[UUID]:
    locked = await lock_free(connection, [one.before.id for one in many])
    free = [one for one in many if as_read(one, locked)]
    return await store_decisions(connection, free, changes.ids) if free else set()
