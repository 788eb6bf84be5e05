"""Beginning an act on many: exactly what was shown is written, and a process carries it out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import asyncpg

from ..schemas.errors import StateError, UsageError
from ..schemas.ids import Ids, SystemIds
from . import audit
from .acting import Attempt, keep_refusal
from .bulk import FASTEST, RATE, Sql
from .bulk_arguments import check_arguments
from .bulk_choosing import Preview
from .permissions import Act, Actor, ActorKind, Grant
from .requests import check_words

_IDS = SystemIds()
#: What is kept of an item, beside its number.
_COLUMNS = (
    *("tenant", "saga", "run", "step", "iteration", "fence", "generation", "hash"),
    *("letter", "subject"),
)


async def begin(
    connection: asyncpg.Connection[Any],
    actor: Actor,
    preview: Preview,
    *,
    reason: str,
    arguments: Mapping[str, Any] = {},
    rate: float = RATE,
    ids: Ids = _IDS,
) -> UUID:
    """Begin an act on exactly what was shown, in a transaction of its own.

    A process carries it out item by item (`milepost serve` with the role upkeep, or the command line that waits for
    it); of CRITICAL consequence only when a second person has confirmed it.

    Args:
        arguments: What the act takes: undo, did_not_happen, result, roles.
        rate: Items begun in a second, at most, over all processes.

    Returns:
        The bulk's id.

    Raises:
        UsageError: MP614 without who or why, MP671 when there is nothing to do, the rate is none, or the act does not
            take what is given.
        StateError: MP664 for an agent, which proposes; that is kept in the audit.
    """
    check_words("bulk", by=actor.name, reason=reason)
    check_arguments(preview.act, arguments)
    if not preview.items or not 0 < rate <= FASTEST:
        text = "nothing was chosen" if not preview.items else f"a rate is more than 0 and at most {FASTEST:g}"
        raise UsageError("MP671", f"{preview.act}: {text}.")
    if actor.kind is ActorKind.AGENT:
        raise await _proposes_only(connection, actor, preview, reason, ids)
    written = ids.new()
    async with connection.transaction():
        await connection.execute(
            Sql.begin,
            written,
            preview.act,
            json.dumps(dict(preview.chosen), default=str),
            json.dumps(dict(arguments), default=sorted),
            *(actor.name, actor.kind.value, json.dumps(_grants_as_json(actor.grants)), reason.strip()),
            *(len(preview.items), rate, "HELD" if preview.second else "RUNNING"),
        )
        columns = ([getattr(item, name) for item in preview.items] for name in _COLUMNS)
        await connection.execute(Sql.add, written, list(range(1, len(preview.items) + 1)), *columns)
        await audit.write(connection, actor, _entry(preview, written, reason), ids)
    return written


async def _proposes_only(
    connection: asyncpg.Connection[Any], actor: Actor, preview: Preview, reason: str, ids: Ids
) -> StateError:
    """Keep in the audit that an agent wanted it, and return what it is told."""
    text = f"{actor.name} is an agent, which proposes one act at a time, and a person accepts it"
    attempt = Attempt(
        act=Act(preview.act),
        name=f"bulk.{preview.act}",
        reason=reason,
        evidence={"items": len(preview.items)},
    )
    await keep_refusal(connection, actor, attempt, text, ids=ids)
    return StateError("MP664", f"{text}.")


def _entry(preview: Preview, bulk: UUID, reason: str) -> audit.Entry:
    return audit.Entry(
        act=f"bulk.{preview.act}",
        reason=reason,
        outcome="HELD" if preview.second else "DONE",
        after={"bulk": "HELD" if preview.second else "RUNNING"},
        evidence={"bulk": str(bulk), "items": len(preview.items), "chosen": dict(preview.chosen)},
    )


def _grants_as_json(grants: Sequence[Grant]) -> list[dict[str, Any]]:
    """Write grants as they are stored; None stays None, which is all."""
    return [
        {
            "role": grant.role.value,
            "tenants": None if grant.tenants is None else sorted(grant.tenants),
            "sagas": None if grant.sagas is None else sorted(grant.sagas),
        }
        for grant in grants
    ]
