"""A batch of changes in one transaction: all are loaded in one statement, decided, and stored in one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import asyncpg

from ..outbox.model import OutboxRow
from .batching import ToStore, is_plain
from .changes import Change, Changes, FactOf, InlineClaim
from .known import Known, known_after
from .rows import Loaded, is_empty, loaded
from .store_many import load_rows, store_decisions


@dataclass(eq=False)
class Asked:
    """A change that somebody waits for.

    Attributes:
        known: The run as it was stored last, when it need not be read.
        remembered: Whether `known` is from memory and not from whoever holds the run's only open step.
        decided: What a batch decided, when it is to be stored alone.
    """

    run_id: UUID
    fact: FactOf
    emitted: Sequence[OutboxRow]
    inline: InlineClaim | None
    answer: asyncio.Future[Change | None]
    known: Known | None = None
    remembered: bool = False
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
        connection: With the settings that the statements ask for.
        batch: Sorted by run.
    """
    at = changes.clock.monotonic()
    known = {asked.run_id: None if asked.known is None else asked.known.here(at) for asked in batch}
    unknown = [run_id for run_id, run in known.items() if run is None]
    rows = await load_rows(connection, unknown) if unknown else {}
    done = Done()
    plain: list[tuple[Asked, Change, ToStore]] = []
    for asked in batch:
        try:
            change = _decided(changes, asked, known[asked.run_id], rows.get(asked.run_id))
            if change is None or is_empty(change.decision):
                # Nothing is compared with the row then, so it has to be of what was read.
                if asked.remembered and known[asked.run_id] is not None:
                    done.left.append(asked)
                else:
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
        asked_at = changes.clock.monotonic()
        stored = await store_decisions(connection, [one for _, _, one in plain], changes.ids)
        at = changes.clock.monotonic()
        for asked, change, _ in plain:
            if (now := stored.get(asked.run_id)) is None:
                done.left.append(asked)
            else:
                known_now = known_after(change.before, change.decision, now, asked_at, at)
                done.answers.append((asked, Change(change.before, change.decision, known_now)))
    return done


def _decided(
    changes: Changes, asked: Asked, before: Loaded | None, row: asyncpg.Record | None
) -> Change | None:
    if before is None:
        if row is None:
            return None
        before = loaded(row)
    decision = changes.decide(before, asked.fact, asked.inline)
    return None if decision is None else Change(before, decision)
