"""Whether a request has to wait for a second person; decided by the process that has the definition."""

from __future__ import annotations

from typing import Any

import asyncpg

from ..sagas import questions
from ..sagas.definition import Definition
from ..schemas.states import Risk
from .changes import Changes, FactOf
from .requests import Sql
from .store import load_run


async def held_for_second(
    connection: asyncpg.Connection[Any], changes: Changes, row: asyncpg.Record, wish: FactOf
) -> bool:
    """Hold what would be accepted and is of CRITICAL consequence until a second person has confirmed it.

    Approvals and rejections have a quorum of their own, and what the application's own code asks for is its decision.

    Args:
        row: The request, locked.
        wish: The request as a fact about a loaded run.
    """
    if row["kind"] == "SYSTEM" or row["confirmed_by"] is not None or row["what"] in {"approve", "reject"}:
        return False
    loaded = await load_run(connection, row["run_id"]) if changes.definitions.critical else None
    if loaded is None or not critical(changes.definitions.of(loaded.run), row["step"]):
        return False
    decision = changes.decide(loaded, wish)
    if decision is None or decision.answer != "changed" or decision.reason:
        return False  # refused, or not for this process: nobody else need be asked
    after = None if row["step"] is None else decision.run.step(row["step"], row["iteration"])
    if after is not None and questions.open_in(after) is not None:
        return False  # it only asks anew, and those who approve are several
    await connection.execute(Sql.hold_request, row["id"], changes.ids.new(), Risk.CRITICAL.value)
    return True


def critical(definition: Definition | None, step: str | None) -> bool:
    """Whether an act on a run, or on that step or undo of it, is of CRITICAL consequence."""
    if definition is None:
        return False
    risks = [definition.severity]
    if step is not None:
        node, undone = definition.node(step), definition.undone_by(step)
        risks += [node.approval.risk] if node is not None and node.approval is not None else []
        risks += [undone.undo.risk] if undone is not None and undone.undo is not None else []
    return Risk.CRITICAL in risks
