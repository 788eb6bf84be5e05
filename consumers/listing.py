"""Reading the list of a fan-out, and storing it whole: in the transaction that ends the attempt, or not at all."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncGenerator, Iterator
from typing import Any, cast

import asyncpg
from pydantic import BaseModel

from ..sagas.context import Context
from ..sagas.model import Step
from ..schemas.errors import MilepostError, UsageError
from ..schemas.states import StepState
from ..schemas.texts import too_long_to_index
from .attempts import Claimed
from .calls import Call
from .changes import Change, InlineClaim
from .engine import Engine, tell, uncancelled
from .fanout import Place, Sql
from .finishing import ROOM_WITHIN, Superseded, finish, logger
from .publishing import emitted_rows
from .rows import dump
from .slots import Slots

#: Most items of one list.
MOST_ITEMS = 1_000_000
#: Items that are kept together, and stored by one statement.
PACK = 2_000
#: Items after which other tasks of the process have their turn, if the list itself waits for nothing.
PAUSE = 50


class Listed:
    """The items that were read so far: their inputs packed, so that a long list takes little memory.

    Args:
        call: The try that reads the list.
    """

    def __init__(self, call: Call) -> None:
        spec = call.node.each
        assert spec is not None
        self._definition = spec.definition
        self._place = f"{call.definition.title}, each {call.node.name}"
        self._tenant = call.run.tenant
        self._hashes: dict[str, bytes] = {}
        self._packs: list[bytes] = []
        self._loose: list[str] = []

    def __len__(self) -> int:
        return len(self._hashes)

    def add(self, value: BaseModel) -> None:
        """Take one more item; one that is there already, with the same input, counts once.

        Raises:
            UsageError: MP392 when it is no input of its saga, MP393 when another one has its key, MP394 when there are
                too many.
        """
        key, encoded, digest = self._encoded(value)
        known = self._hashes.get(key)
        if known == digest:
            return
        if known is not None:
            raise UsageError(
                "MP393",
                f"{self._place}: two items have the key {key[:200]!r} and different inputs, and a key names one run. "
                "Give them different keys, or leave one out.",
            )
        if len(self) == MOST_ITEMS:
            raise UsageError(
                "MP394",
                f"{self._place}: there are more than {MOST_ITEMS} items. Use several fan-outs, or runs.",
            )
        self._hashes[key] = digest
        self._loose.append(dump(encoded))
        if len(self._loose) == PACK:
            self._packs.append(_packed(self._loose))
            self._loose = []

    def _encoded(self, value: BaseModel) -> tuple[str, Any, bytes]:
        try:
            encoded, digest = self._definition.encode_input(value)
            key = self._definition.key_of(value)
        except MilepostError as error:
            raise self._wrong(error.text) from error
        except Exception as error:  # the user's key function may raise anything
            raise self._wrong(f"key= raised {type(error).__name__}: {error}") from error
        if too_long_to_index(self._tenant, self._definition.name, key + "~99"):
            raise self._wrong(f"its key {key[:50]!r}... is too long")
        return key, encoded, digest[:16]

    def _wrong(self, why: str) -> UsageError:
        return UsageError(
            "MP392",
            f"{self._place}: item {len(self)} cannot be stored: {why.rstrip('.')}. Nothing was begun; mend the list, "
            "and retry the node.",
        )

    def packs(self) -> Iterator[tuple[list[int], list[str], list[str]]]:
        """Yield the items in order: their numbers, keys and inputs."""
        keys = iter(self._hashes)
        first = 0
        for pack in [*self._packs, _packed(self._loose)]:
            inputs = zlib.decompress(pack).decode().split("\n") if pack else []
            numbers = list(range(first, first + len(inputs)))
            first += len(inputs)
            yield numbers, [next(keys) for _ in inputs], inputs


def _packed(inputs: list[str]) -> bytes:
    """Pack texts of JSON, none of which holds a line break."""
    return zlib.compress("\n".join(inputs).encode(), 1) if inputs else b""


async def finish_listing(engine: Engine, call: Call, inline: InlineClaim, room: Slots) -> Claimed | None:
    """Read the list and store it with the end of the attempt.

    Args:
        room: How many may hold a connection at once; a list that finds none in time is read again.

    Returns:
        The next step when this process claimed it in the same change.
    """
    try:
        listed = await _read(call)
    except (Exception, asyncio.CancelledError) as error:
        return await finish(engine, call, call.failed(error), inline)
    return await uncancelled(_finish(engine, call, listed, inline, room))


async def _read(call: Call) -> Listed:
    spec = call.node.each
    assert spec is not None
    listed = Listed(call)

    async def read(context: Context[Any]) -> None:
        values = spec.items(context)
        try:
            async for value in values:
                listed.add(value)
                if not len(listed) % PAUSE:
                    await asyncio.sleep(0)
        finally:
            if isinstance(values, AsyncGenerator):
                await values.aclose()

    await call.within_timeout(read)
    return listed


async def _finish(
    engine: Engine, call: Call, listed: Listed, inline: InlineClaim, room: Slots
) -> Claimed | None:
    try:
        async with asyncio.timeout(min(ROOM_WITHIN, engine.changes.limits.slack.total_seconds() / 2)):
            place = await room.acquire(call.run.priority)
    except TimeoutError:
        return await finish(engine, call, call.unbegun(), inline)
    try:
        return await _store(engine, call, listed, inline)
    finally:
        room.release(place)


async def _store(engine: Engine, call: Call, listed: Listed, inline: InlineClaim) -> Claimed | None:
    try:
        async with engine.pool.acquire() as proxy:
            connection = cast("asyncpg.Connection[Any]", proxy)
            async with connection.transaction():
                change = await _written(engine, connection, call, listed, inline)
    except Superseded:
        logger.warning("%s of %s: superseded, its list is not stored", call.step.name, call.run.id)
        return None
    except Exception as error:
        inline.attempt.unanswered()
        return await finish(engine, call, call.failed(error), inline)
    tell(change)
    return inline.attempt.answered(change)


async def _written(
    engine: Engine, connection: asyncpg.Connection[Any], call: Call, listed: Listed, inline: InlineClaim
) -> Change:
    """Store the items, and then the end of the attempt, so that the run's row is locked for no longer than needed."""
    spec, place = call.node.each, Place.of(call.run.id, call.step)
    fact = call.succeeded(None, items=len(listed))
    assert spec is not None
    for numbers, keys, inputs in listed.packs():
        await connection.execute(Sql.store_items, *place.key, numbers, keys, inputs)
    change = await engine.changes.apply(
        connection,
        call.run.id,
        fact,
        emitted=emitted_rows(engine, call),
        made=call.recorded(fact),
        inline=inline,
    )
    if change is None or change.decision.answer != "changed":
        raise Superseded
    row = change.decision.run.step(call.step.name, call.step.iteration)
    if _went_on(row):
        attempt, version = call.step.attempt, spec.definition.input_version
        await connection.execute(Sql.store_list, *place.key, attempt, version, len(listed))
    else:
        await connection.execute(Sql.forget_items, *place.key)
    return change


def _went_on(row: Step | None) -> bool:
    """Tell whether the list counts: it waits for its items, or has none and is done."""
    return row is not None and row.state in (StepState.WAITING, StepState.SUCCEEDED)
