"""Acts on many: a filter, what it chooses shown first, then one outcome each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any, Literal, Self, get_args
from uuid import UUID

import asyncpg
from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from ....recovery import bulk as acts
from ....recovery.bulk_beginning import begin
from ....recovery.bulk_carrying import control
from ....recovery.bulk_choosing import Item, Preview, RunFilter, preview_letters, preview_runs
from ....recovery.letters import LIVE, LetterFilter
from ....recovery.permissions import EVERYTHING, Act, Actor, Scope, scope_of
from ....schemas.errors import StateError, UsageError
from ....schemas.states import LetterStatus, Risk, RunState
from ..identity import Connected, Signed
from ..permitting import needs
from .described import READS, WRITES, IdempotencyKey, Instant
from .paging import Cursor, Limit, Page, cursor_of, number, read_cursor

router = APIRouter(tags=["acts on many"], responses=READS)

#: Items of a preview that are shown.
SHOWN = 100
_OF_LETTERS = frozenset({"redrive", "ignore"})
Words = Annotated[str | None, Field(min_length=1, max_length=500)]
ActOnMany = Literal[
    "retry",
    "skip",
    "mark_succeeded",
    "compensate",
    "resume",
    "cancel",
    "approve",
    "reject",
    "redrive",
    "ignore",
]


class Choice(BaseModel):
    """What is chosen, and by what; what is left out does not matter, and something has to be said.

    Attributes:
        saga, state, step, since: Of runs, or of their steps.
        code: Of the step, the run or the letter.
        topic, consumer, cause, status: Of letters.
    """

    model_config = ConfigDict(extra="forbid")

    act: ActOnMany
    saga: Words = None
    state: list[RunState] = Field(default=[], max_length=20)
    step: Words = None
    since: Instant | None = None
    code: Words = None
    topic: Words = None
    consumer: Words = None
    cause: Words = None
    status: list[LetterStatus] = Field(default=[], max_length=4)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        runs = bool(self.saga or self.state or self.step)
        letters = bool(self.topic or self.consumer or self.cause or self.status)
        if runs if self.of_letters else letters:
            raise ValueError(f"{self.act} does not choose by these fields")
        if not (runs or letters or self.code or self.since):
            raise ValueError("nothing is chosen by; an act on everything is not taken")
        return self

    @property
    def of_letters(self) -> bool:
        """Whether letters are chosen."""
        return self.act in _OF_LETTERS


class ChosenItem(BaseModel):
    """One of many."""

    subject: str
    tenant: str
    saga: str | None
    run: UUID | None
    step: str | None
    letter: int | None
    code: str | None
    risk: Risk


class Chosen(BaseModel):
    """What would be done.

    Attributes:
        total: How many would be acted on; give it as `expect`.
        forbidden: How many more fit, that you may not act on.
        more: There are more than one act on many takes.
        second: Whether a second person has to confirm it.
        codes: How many there are of each code.
        items: The first of them.
        mark: Of exactly these, as they stand; give it along.
    """

    act: str
    total: int
    mark: str
    forbidden: int
    more: bool
    second: bool
    codes: dict[str, int]
    items: list[ChosenItem]


class NewBulk(Choice):
    """An act on what a preview has shown.

    Attributes:
        expect: `total` of the preview: where another number is chosen by now, nothing is begun.
        mark: Of the preview: where others are chosen by now, though as many, nothing is begun.
        arguments: What the act takes: undo (cancel), did_not_happen, result.
        rate: Items begun in a second, at most.
    """

    reason: str = Field(min_length=1, max_length=4000)
    expect: int = Field(ge=1, le=acts.MOST)
    mark: str | None = Field(default=None, max_length=64)
    arguments: dict[str, JsonValue] = Field(default={}, max_length=20)
    rate: float = Field(default=acts.RATE, gt=0, le=acts.FASTEST)


class BulkNow(BaseModel):
    """An act on many as it stands.

    Attributes:
        left: How many have no outcome yet.
        counts: Items by outcome.
    """

    id: UUID
    act: str
    chosen: dict[str, Any]
    by: str
    kind: str
    reason: str
    total: int
    rate: float
    state: str
    at: datetime
    ended_at: datetime | None
    confirmed_by: str | None
    counts: dict[str, int]
    left: int


class BulkItem(BaseModel):
    """One of many, and what became of it; `outcome` is null while nothing has."""

    n: int
    subject: str
    state: str
    outcome: str | None
    code: str | None
    text: str | None
    request: UUID | None


class Control(BaseModel):
    """What is to become of it, and why; `confirm` is the second person's yes."""

    model_config = ConfigDict(extra="forbid")

    what: Literal["pause", "resume", "stop", "confirm"]
    reason: str = Field(min_length=1, max_length=4000)


_ANY = tuple(Act(name) for name in get_args(ActOnMany))


@router.post("/bulk-preview", dependencies=[needs(*_ANY)], responses=WRITES)
async def preview(body: Choice, actor: Signed, connection: Connected) -> Chosen:
    """Show what an act would be about; nothing is written, and no key is needed."""
    found = await _chosen(connection, actor, body)
    return Chosen(
        act=found.act,
        total=len(found.items),
        mark=found.mark,
        forbidden=found.forbidden,
        more=found.more,
        second=found.second,
        codes=dict(found.codes),
        items=[_item(item) for item in found.items[:SHOWN]],
    )


@router.post("/bulk", dependencies=[needs(*_ANY)], responses=WRITES, status_code=202)
async def begin_bulk(
    body: NewBulk, request: Request, actor: Signed, connection: Connected, idempotency_key: IdempotencyKey
) -> BulkNow:
    """Begin an act on what the preview has shown; processes of the role upkeep carry it out, one by one."""
    found = await _chosen(connection, actor, body)
    if len(found.items) != body.expect:
        raise StateError(
            "MP720",
            f"{body.act}: {len(found.items)} are chosen now, and {body.expect} were shown. Look once more.",
        )
    if body.mark not in {None, found.mark}:
        raise StateError("MP720", f"{body.act}: others are chosen now than were shown. Look once more.")
    if "roles" in body.arguments:
        raise UsageError("MP671", f"{body.act}: roles are those that you have, and are not claimed.")
    arguments: dict[str, Any] = dict(body.arguments)
    if body.act in acts.OF_QUESTIONS:
        arguments["roles"] = _roles(actor, found, request.state.caller.groups)
    made = await begin(connection, actor, found, reason=body.reason, arguments=arguments, rate=body.rate)
    return (await _bulks(connection, EVERYTHING, made))[0]


@router.get("/bulk", dependencies=[needs(Act.READ_BULK)])
async def list_bulks(
    actor: Signed,
    connection: Connected,
    open: Annotated[bool, Query(description="Only those that have not ended.")] = False,
    limit: Limit = 50,
) -> list[BulkNow]:
    """List acts on many, the youngest first."""
    found = await acts.bulks(connection, scope_of(actor, Act.READ_BULK), only_open=open, limit=limit)
    return [_now(one) for one in found]


@router.get("/bulk/{bulk}", dependencies=[needs(Act.READ_BULK)])
async def show_bulk(bulk: UUID, actor: Signed, connection: Connected) -> BulkNow:
    """Show how far an act on many is."""
    return (await _bulks(connection, scope_of(actor, Act.READ_BULK), bulk))[0]


@router.get("/bulk/{bulk}/items", dependencies=[needs(Act.READ_BULK)])
async def list_items(
    *,
    bulk: UUID,
    actor: Signed,
    connection: Connected,
    outcome: Annotated[str | None, Query(max_length=30)] = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> Page[BulkItem]:
    """List the items, in the order in which they are begun, each with what became of it."""
    await _bulks(connection, scope_of(actor, Act.READ_BULK), bulk)
    after = min(read_cursor(cursor, number) or 0, 2**31 - 1)
    rows = await acts.items_of(connection, bulk, after=after, outcome=outcome, limit=limit + 1)
    items = [BulkItem(**{name: row[name] for name in BulkItem.model_fields}) for row in rows[:limit]]
    return Page(items=items, next=cursor_of(items[-1].n) if len(rows) > limit else None)


@router.post("/bulk/{bulk}/control", dependencies=[needs(Act.CONTROL_BULK, Act.CONFIRM)], responses=WRITES)
async def control_bulk(
    *,
    bulk: UUID,
    body: Control,
    actor: Signed,
    connection: Connected,
    idempotency_key: IdempotencyKey,
) -> BulkNow:
    """Pause, resume, stop or confirm it. What was asked for already gets its outcome all the same."""
    await _bulks(connection, scope_of(actor, Act.READ_BULK), bulk)
    await control(connection, actor, bulk, body.what, reason=body.reason)
    return (await _bulks(connection, EVERYTHING, bulk))[0]


def _roles(actor: Actor, chosen: Preview, groups: Iterable[str]) -> list[str]:
    """Return the groups of whoever asks, and the roles that hold for all that is chosen."""
    places = {(item.tenant, item.saga) for item in chosen.items}
    held = [{role.value.lower() for role in actor.roles(*place)} for place in places]
    return sorted({*groups, *(set.intersection(*held) if held else ())})


async def _chosen(connection: asyncpg.Connection[Any], actor: Actor, wanted: Choice) -> Preview:
    if wanted.act in {"redrive", "ignore"}:
        letters = LetterFilter(
            statuses=tuple(wanted.status or LIVE),
            topic=wanted.topic,
            code=wanted.code,
            consumer=wanted.consumer,
            cause=wanted.cause,
            since=wanted.since,
        )
        fields = {"topic", "code", "consumer", "cause", "since", "status"}
        chosen: Mapping[str, Any] = wanted.model_dump(mode="json", include=fields, exclude_defaults=True)
        return await preview_letters(connection, actor, wanted.act, letters, chosen=chosen)
    runs = RunFilter(
        saga=wanted.saga, states=wanted.state, code=wanted.code, step=wanted.step, since=wanted.since
    )
    return await preview_runs(connection, actor, wanted.act, runs)


async def _bulks(connection: asyncpg.Connection[Any], scope: Scope, bulk: UUID) -> list[BulkNow]:
    found = await acts.bulks(connection, scope, id=bulk)
    if not found:
        raise acts.no_bulk(bulk)
    return [_now(one) for one in found]


def _now(one: acts.Bulk) -> BulkNow:
    return BulkNow(**asdict(one), left=one.left)


def _item(item: Item) -> ChosenItem:
    return ChosenItem(**{name: getattr(item, name) for name in ChosenItem.model_fields})
