"""A pass: observe, decide, repair, one after the other, and at most so much at a time."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from ..sagas.model import Json
from .executor import Connection, Executor, Sql
from .model import DECIDED, Action, Drift, Observation, Reconciled
from .observers import (
    OBSERVERS,
    SLOW_OUTBOX,
    Observer,
    Page,
    Place,
    by_queue,
    look,
    look_at_outbox,
    with_past,
)
from .observers import Sql as Looking
from .policies import Policies

#: Most decisions of a pass that are carried out; the others are found again by the next one.
MOST = 100
#: An outbox that is behind by less may be busy.
OUTBOX_AGE = timedelta(minutes=1)


@dataclass
class Pass:
    """Looks through one page of each list, and carries out what follows.

    Args:
        connection: Not in a transaction.
        policies: What is to be done.
        executor: Does it.
        service: Only runs of this service; None for all.
        run: Only this run; a person has asked for it.
        only: Only drifts of this kind.
        asked: A person wants this looked at now, though it is about no single run.
    """

    connection: Connection
    policies: Policies
    executor: Executor
    service: str | None = None
    run: UUID | None = None
    most: int = MOST
    page: int = 500
    only: Drift | None = None
    asked: bool = False

    async def once(
        self, places: dict[str, Place] | None = None, only: Collection[str] | None = None
    ) -> list[Reconciled]:
        """Look once, and return what was found with what became of it.

        Args:
            places: Where the page of each list begins, moved on; a list of which no page is left is not in it.
            only: Names of observers; None for all, and for the outbox.
        """
        return await self.act(await self.observe({} if places is None else places, only))

    async def every(self) -> list[Reconciled]:
        """Look through all pages of all lists, at most `most` decisions."""
        places: dict[str, Place] = {}
        found = await self.once(places)
        while places and sum(one.outcome in DECIDED for one in found) < self.most:
            found += await self.once(places, tuple(places))
        return found

    async def observe(
        self, places: dict[str, Place], only: Collection[str] | None = None
    ) -> list[Observation]:
        """Return drifts of one page of each list, with what was decided about them before; nothing is changed."""
        seen: list[Observation] = []
        async with self.connection.transaction(isolation="read_committed"):
            await self.connection.execute(Looking.by_index)
            outbox = await look_at_outbox(self.connection)
            for observer in OBSERVERS:
                if (only is not None and observer.name not in only) or not (
                    observer.of_runs or self.run is None
                ):
                    continue
                page = await self._page(observer, places.pop(observer.name, None))
                # A shorter time that was said of one kind of work finds others sooner than they are meant to be.
                seen += [one for one in page.seen if self._old_enough(one, observer)]
                if not page.last:
                    places[observer.name] = page.place
            seen = await with_past(self.connection, [self._known(one, outbox) for one in seen])
            seen = by_queue(seen)
            if outbox is not None and outbox.age >= OUTBOX_AGE and self.run is None and only is None:
                seen.append(outbox)
            if self.only is not None:
                seen = [one for one in seen if one.drift is self.only]
            return await with_past(self.connection, seen)

    def _old_enough(self, one: Observation, observer: Observer) -> bool:
        return self.policies.least(one) is not None or one.age >= observer.age

    async def _page(self, observer: Observer, place: Place | None) -> Page:
        age = timedelta(0) if self.run is not None and observer.name == "unknown" else None
        age = observer.least(self.policies.after) if age is None else age
        return await look(
            self.connection,
            observer,
            service=self.service,
            run=self.run,
            place=place,
            page=self.page,
            age=age,
        )

    def _known(self, seen: Observation, outbox: Observation | None) -> Observation:
        """Add what belongs to the whole: whether a person has asked, and whether messages may not have left yet."""
        one = replace(seen, asked=self.asked or self.run is not None)
        if "workers" not in one.evidence:
            return one
        behind = outbox is not None and outbox.age >= SLOW_OUTBOX
        return replace(one, evidence={**one.evidence, "outbox_behind": behind})

    async def act(self, seen: Sequence[Observation]) -> list[Reconciled]:
        """Decide about each, and carry it out, until `most` were."""
        found: list[Reconciled] = []
        done = 0
        for one in seen:
            plan = self.policies.plan(one)
            if done >= self.most and plan.action is not Action.NONE:
                break
            alone = self.policies.alone(one, plan)
            found.append(await self.executor.decide(self.connection, one, plan, alone=alone))
            done += found[-1].outcome in DECIDED
        return found


@asynccontextmanager
async def leading(
    connection: Connection, service: str, every: timedelta
) -> AsyncGenerator[dict[str, Place] | None]:
    """Be the only one that looks for a service as long as the block lasts; None when another one does, or just has.

    The block gets the places where its pages begin, which are kept when it ends.

    Args:
        connection: Not in a transaction; nothing else may be done on it meanwhile.
        every: The last pass must have ended so long ago.
    """
    await connection.execute(Sql.make_reconciler, service)
    async with connection.transaction(isolation="read_committed"):
        row = await connection.fetchrow(Sql.lead, service, every)
        if row is None:
            yield None
            return
        places = _read(json.loads(row["cursors"]))
        yield places
        await connection.execute(Sql.passed, service, json.dumps(_written(places)))


def _written(places: dict[str, Place]) -> dict[str, list[str]]:
    return {
        name: [at.isoformat() if isinstance(at, datetime) else str(at), str(id)]
        for name, (at, id) in places.items()
    }


def _read(stored: dict[str, Json]) -> dict[str, Place]:
    found: dict[str, Place] = {}
    for observer in OBSERVERS:
        place: Any = stored.get(observer.name)
        if not isinstance(place, list) or len(place) != 2:
            continue
        of_time = isinstance(observer.first[0], datetime)
        found[observer.name] = (
            (datetime.fromisoformat(place[0]), UUID(place[1])) if of_time else (place[0], place[1])
        )
    return found
