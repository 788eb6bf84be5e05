"""Dead letters: by cause, one by one, and what may be done about them."""

from __future__ import annotations

from typing import Annotated, Any

import asyncpg
from fastapi import APIRouter, Depends, Path, Query
from pydantic import Base64Bytes, BaseModel, ConfigDict, Field

from ....inbox.edit_model import Edit
from ....recovery import letters as acts
from ....recovery.letters import LIVE, LetterAct, LetterFilter
from ....recovery.permissions import EVERYTHING, Act, Actor, scope_of
from ....schemas.errors import StateError
from ....schemas.ids import SystemIds
from ....schemas.settings import max_event_bytes
from ....schemas.states import LetterStatus
from ...views import letters as views
from ...views.letter_rows import LetterDetail, LetterGroups, LetterRow
from ..identity import Connected, Signed
from ..permitting import may, needs
from ..seeing import seen
from .described import READS, WRITES, IdempotencyKey
from .paging import Cursor, Limit, Page, cursor_of, number, read_cursor

router = APIRouter(prefix="/letters", tags=["dead letters"], responses=READS)

Text = Annotated[str | None, Query(max_length=500)]
#: Largest number of a letter.
_LARGEST = 2**63 - 1


def chosen(
    *,
    status: Annotated[list[LetterStatus] | None, Query()] = None,
    topic: Text = None,
    code: Text = None,
    key: Annotated[list[str] | None, Query(max_length=20)] = None,
    consumer: Text = None,
    cause: Text = None,
) -> LetterFilter:
    """Read which letters are meant; without a status those that somebody has to look at."""
    return LetterFilter(
        statuses=tuple(status or LIVE),
        topic=topic,
        code=code,
        keys=[one.encode() for one in key or ()],
        consumer=consumer,
        cause=cause,
    )


Chosen = Annotated[LetterFilter, Depends(chosen)]
N = Annotated[int, Path(ge=1, le=_LARGEST, description="The letter's number.")]


class LetterAsk(BaseModel):
    """Why something is done about a letter."""

    model_config = ConfigDict(extra="forbid")

    reason: str = Field(min_length=1, max_length=4000)


class LetterEdit(LetterAsk):
    """What is to be different in the new letter; what is left out stays.

    Attributes:
        value: The new value, in base64.
        key: The new record key, in base64.
        headers: Texts by name; null takes a header away.
        redrive: Have it handled at once.
    """

    value: Base64Bytes | None = None
    key: Base64Bytes | None = None
    headers: dict[str, str | None] = Field(default={}, max_length=50)
    redrive: bool = False


class LetterDone(BaseModel):
    """What became of an act, and the letter as it is now.

    Attributes:
        outcome: ASKED: its process carries it out; IGNORED; NOOP: it was so before; EDITED: `letter` is the new one.
    """

    outcome: str
    text: str
    letter: LetterRow


@router.get("", dependencies=[needs(Act.READ_LETTERS)])
async def list_letters(
    actor: Signed, connection: Connected, wanted: Chosen, cursor: Cursor = None, limit: Limit = 50
) -> Page[LetterRow]:
    """List letters, the oldest first; without a status those that somebody has to look at."""
    after = read_cursor(cursor, number) or 0
    scope = scope_of(actor, Act.READ_LETTERS)
    found = await views.letters(
        connection, scope, wanted, after=after, limit=limit, payloads=scope_of(actor, Act.READ_PAYLOAD)
    )
    return Page(items=found.letters, next=cursor_of(found.next))


@router.get("/groups", dependencies=[needs(Act.READ_LETTERS)])
async def list_groups(actor: Signed, connection: Connected, wanted: Chosen) -> LetterGroups:
    """Group letters by their cause, the largest group first."""
    return await views.letter_groups(
        connection, scope_of(actor, Act.READ_LETTERS), wanted, payloads=scope_of(actor, Act.READ_PAYLOAD)
    )


@router.get("/{n}", dependencies=[needs(Act.READ_LETTERS)])
async def show_letter(n: N, actor: Signed, connection: Connected) -> LetterDetail:
    """Show a letter, with its value for who may read payloads."""
    own, scope = await seen(connection, actor, Act.READ_LETTERS, "letter", n)
    return await views.letter(
        connection, scope, n, readable=may(actor, Act.READ_PAYLOAD, tenant=own.tenant, saga=own.saga)
    )


@router.post("/{n}/redrive", dependencies=[needs(Act.REDRIVE)], responses=WRITES)
async def redrive_letter(
    n: N, body: LetterAsk, actor: Signed, connection: Connected, idempotency_key: IdempotencyKey
) -> LetterDone:
    """Have a letter handled again, in its turn among those of its key."""
    return await _act(connection, actor, "redrive", n, body.reason)


@router.post("/{n}/ignore", dependencies=[needs(Act.IGNORE)], responses=WRITES)
async def ignore_letter(
    n: N, body: LetterAsk, actor: Signed, connection: Connected, idempotency_key: IdempotencyKey
) -> LetterDone:
    """Close a letter without handling it; later ones of its key go on."""
    return await _act(connection, actor, "ignore", n, body.reason)


@router.post("/{n}/edit", dependencies=[needs(Act.EDIT_LETTER)], responses=WRITES)
async def edit_letter(
    n: N, body: LetterEdit, actor: Signed, connection: Connected, idempotency_key: IdempotencyKey
) -> LetterDone:
    """Make a new letter of one, which stays as it was and is closed."""
    await seen(connection, actor, Act.READ_LETTERS, "letter", n, doing=Act.EDIT_LETTER)
    change = Edit(value=body.value, key=body.key, headers=body.headers)
    made = await acts.edit_letter(
        connection,
        actor,
        n,
        change,
        reason=body.reason,
        ids=SystemIds(),
        max_bytes=max_event_bytes(),
        redrive=body.redrive,
    )
    return await _done(connection, "EDITED", f"letter {n} is closed", made.n)


async def _act(
    connection: asyncpg.Connection[Any], actor: Actor, act: LetterAct, n: int, reason: str
) -> LetterDone:
    await seen(connection, actor, Act.READ_LETTERS, "letter", n, doing=Act(act))
    found = await acts.act_on(connection, actor, act, n, reason=reason, ids=SystemIds())
    if found.code is not None:
        raise StateError(found.code, found.text)
    return await _done(connection, found.word, found.text, n)


async def _done(connection: asyncpg.Connection[Any], outcome: str, text: str, n: int) -> LetterDone:
    now = await views.letter(connection, EVERYTHING, n, readable=False)
    return LetterDone(outcome=outcome, text=text, letter=now.letter)
