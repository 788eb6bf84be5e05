"""Carrying redrives out: letters that a person asked for go to their handlers once more, each in its own transaction.

Hold and letter are locked, lowest letter first; the inbox row turns from PARKED to APPLIED together with the effect and
the letter's RESOLVED. A process that dies in between leaves the letter asked for, and another one carries it out; how
often that happens is counted by tries that are committed before they begin.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ..schemas.ids import Clock, Ids, Randomness, SystemRandomness
from ..schemas.transaction import Publisher, Transaction
from ..streams.database import Database
from ..streams.lifecycle import Health, Stop
from ..streams.tracing import span
from ..streams.words import words_of
from . import redrive_store
from .calling import call
from .consumer import Consumer, PreparedConsumer
from .failures import (
    HandlerFailed,
    Judge,
    Underneath,
    another_try,
    at_commit,
    ended_transaction,
    reason_of,
)
from .letter import scope_of
from .model import Reason
from .pieces import delay
from .redrive_read import GONE, Refused, allowed, read
from .redrive_store import Letter, RedriveStore

logger = logging.getLogger("milepost")

#: Seconds between two looks for letters that were asked for: one probe of a partial index, nearly always empty.
POLL = 1.0
#: Tries of one redrive that may end with their process before the letter is opened again.
DEATHS = 3
#: Times in a row that one letter may meet trouble underneath before that is taken for its own.
PATIENCE = 5
_PAUSE = 1.0
_HAND_BACK = 1.0
_LOOK_AT_AGE = 30.0
_NO_LETTER = "no open letter"


@dataclass(slots=True)
class Counts:
    """What a redriver has done since it began."""

    resolved: int = 0
    failed: int = 0


class Redriver:
    """The part of the consumers' role that handles redriven letters.

    Args:
        consumers: Whose letters; they bring the handlers.
        database: Where letters, inbox and effects are.
        publisher: What `Transaction.publish` calls.
        ids: For audit entries.
        judge: Says of what a handler raised whether another try may help, and the letter's code.
    """

    def __init__(
        self,
        consumers: Sequence[Consumer],
        database: Database,
        publisher: Publisher,
        *,
        clock: Clock,
        ids: Ids,
        dice: Randomness | None = None,
        judge: Judge = another_try,
        name: str = "redrive",
    ) -> None:
        self.name = name
        self.counts = Counts()
        self._consumers: Mapping[str, Consumer] = {scope_of(one.name): one for one in consumers}
        self._stores = {scope_of(one.name): RedriveStore(one.name, ids) for one in consumers}
        self._database = database
        self._publisher = publisher
        self._clock = clock
        self._dice = dice or SystemRandomness()
        self._judge = judge
        self._secret = False
        self._done = 0
        self._trouble: str | None = None
        self._met: dict[Any, int] = {}
        self._open = _NO_LETTER
        self._looked: float | None = None
        self._parts = [self]
        if len(consumers) > 1:
            # Each consumer's letters on their own: a slow handler, or a long wait for its next try, is no other's.
            again = partial(Redriver, clock=clock, ids=ids, dice=dice, judge=judge)
            self._parts = [again([one], database, publisher, name=one.name) for one in consumers]
            for part in self._parts:
                part.counts = self.counts

    async def run(self, stop: Stop) -> None:
        """Look for letters until asked to stop; one that is being handled may finish within the grace time."""
        async with asyncio.TaskGroup() as group:
            for part in self._parts:
                group.create_task(part._work(stop))

    async def _work(self, stop: Stop) -> None:
        while not stop.asked:
            task = asyncio.create_task(self._turn())
            stopping = asyncio.create_task(stop.wait())
            try:
                await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
                if not task.done():
                    await asyncio.wait({task}, timeout=stop.remaining())
                pause = await task if task.done() else POLL
            finally:
                for one in (task, stopping):
                    one.cancel()
                    with suppress(asyncio.CancelledError):
                        await one
            await stop.wait(pause)

    async def _turn(self) -> float:
        """Do what is there to do; return the seconds to wait before the next look."""
        try:
            pause = 0.0 if await self.once() else POLL
            await self._age()
        except Exception as error:
            if self._trouble is None:
                logger.warning("%s: %s; trying again", self.name, words_of(error))
            self._trouble = words_of(error)
            return _PAUSE
        self._trouble = None
        return pause

    def health(self) -> Health:
        """Red while the database does not answer; an old letter is no fault of the process, and is said."""
        trouble = next((part._trouble for part in self._parts if part._trouble is not None), None)
        found = [
            part._open if part is self else f"{part.name}: {part._open}"
            for part in self._parts
            if part._open != _NO_LETTER
        ]
        done = f"{self.counts.resolved} redriven, {self.counts.failed} failed again; {'; '.join(found) or _NO_LETTER}"
        return Health(trouble is None, trouble or done)

    async def once(self) -> bool:
        """Handle at most one letter of each consumer; return whether any was handled.

        Raises:
            Exception: Trouble underneath; the letters stay asked for.
        """
        scopes = await redrive_store.waiting(self._database.pool, list(self._consumers))
        return any([await self._one(scope) for scope in scopes])

    async def _one(self, scope: str) -> bool:
        """Handle the next letter of a consumer, unless another process is at it."""
        consumer, store, pool = self._consumers[scope], self._stores[scope], self._database.pool
        letter, tries, self._done = None, 0, 0
        try:
            async with self._database.transaction(self._publisher) as tx:
                if not await store.lock(tx.connection):
                    return False
                letter = await store.next(tx.connection)
                begun = None if letter is None else await store.begin(pool, letter)
                if letter is None or begun is None:
                    return False
                tries = begun
                await self._handle(tx, consumer, store, letter, tries)
        except asyncio.CancelledError:
            await self._hand_back(store, letter)
            raise
        except Exception as error:
            if letter is None:
                raise
            reason = await self._reason(store, letter, error)
            if not await self._again(consumer, letter, tries, error):
                await self._fail(store, letter, reason, tries)
            return True
        self._met.pop(letter.id, None)
        self.counts.resolved += self._done
        return True

    async def _handle(
        self, tx: Transaction, consumer: Consumer, store: RedriveStore, letter: Letter, tries: int
    ) -> None:
        connection = tx.connection
        if tries > max(DEATHS, allowed(consumer, letter)):
            message = f"{tries - 1} tries of this redrive ended with the process that made them"
            raise Refused(Reason("HANDLE", "PROCESS_DIED", message, recoverable=True))
        if not await store.take(connection, letter):
            return
        parked = await store.apply_mark(connection, letter)
        if parked is None:
            raise Refused(GONE)
        if parked:
            item = read(consumer, letter)
            self._secret = item.secret
            if (
                isinstance(consumer, PreparedConsumer)
                and item.event is not None
                and item.envelope is not None
            ):
                await consumer.prepare(tx, [(item.event, item.envelope)])
            with span("redrive", attributes={"milepost.letter": str(letter.id)}):
                await call(consumer.name, self._publisher, tx, item)
        why = "handled once more" if parked else "its event had been applied meanwhile"
        await store.resolve(connection, letter, why)
        self._done += 1

    async def _reason(self, store: RedriveStore, letter: Letter, error: Exception) -> Reason:
        """Return why a try failed.

        Raises:
            Exception: Trouble underneath, which says nothing about the letter yet.
        """
        if isinstance(error, Refused):
            return error.reason
        if isinstance(error, HandlerFailed | Underneath) and error.ended:
            # The handler has committed the mark; what it wrote is committed too, and a person has to look.
            await store.park_mark(self._database.pool, letter)
        if isinstance(error, HandlerFailed):
            return self._words(error.__cause__)
        cause = error.error if isinstance(error, Underneath) else error
        if not isinstance(error, Underneath) and not at_commit(error):
            return self._words(cause)
        await self._hand_back(store, letter)
        self._met[letter.id] = self._met.get(letter.id, 0) + 1
        if self._met[letter.id] < PATIENCE:
            raise cause
        return self._words(cause)

    def _words(self, cause: BaseException | None) -> Reason:
        return replace(reason_of(cause, secret=self._secret), code=self._judge(cause).code)

    async def _again(self, consumer: Consumer, letter: Letter, tries: int, error: Exception) -> bool:
        """Tell whether the same redrive tries once more, and wait before it does: only for one that merely waited."""
        cause = error.__cause__
        if isinstance(error, Refused) or ended_transaction(cause) or tries >= allowed(consumer, letter):
            return False
        judged = self._judge(cause)
        if judged.again:
            await asyncio.sleep(delay(consumer.retry, tries, self._dice.uniform(), judged.retry_after))
        return judged.again

    async def _fail(self, store: RedriveStore, letter: Letter, reason: Reason, tries: int) -> None:
        self._met.pop(letter.id, None)
        if await store.fail(self._database.pool, letter, reason, tries):
            self.counts.failed += 1

    async def _hand_back(self, store: RedriveStore, letter: Letter | None) -> None:
        if letter is None:
            return
        with suppress(Exception):
            async with asyncio.timeout(_HAND_BACK):
                await store.call_off(self._database.pool, letter)

    async def _age(self) -> None:
        now = self._clock.monotonic()
        if self._looked is not None and now - self._looked < _LOOK_AT_AGE:
            return
        self._looked = now
        amount, age = await redrive_store.oldest(self._database.pool, list(self._consumers))
        hours = 0.0 if age is None else age.total_seconds() / 3600
        self._open = f"{amount} open letters, the oldest {hours:.1f} h old" if amount else _NO_LETTER
