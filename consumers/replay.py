"""Replaying a slice of a topic against a consumer's inbox: what was applied, what is missing, what conflicts.

A throwaway reader reads, partition after partition, so that two replays of one slice give one report. The live group is
neither joined nor moved. With `apply`, what is missing goes through the inbox with the consumer's own handlers, and
only what the consumer has read past: from the purge's floor up to how far the consumer had come when this began.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from ..inbox import replay_store
from ..inbox.consumer import Consumer
from ..inbox.intake import Intake
from ..inbox.replay_store import Progress, ReplayStore
from ..inbox.store import InboxStore
from ..schemas.errors import ConnectError, StateError, UsageError
from ..schemas.ids import Ids
from ..streams import slice as topic_slice
from ..streams.database import Database
from ..streams.slice import Slice
from . import replay_plan
from .engine import DATABASE_ERRORS
from .replay_plan import Edge, Found, Offsets
from .replay_run import ReplayReport, Run, Tell, report_of, tell_nobody


@dataclass(frozen=True, kw_only=True)
class Replayer:
    """Replays for one consumer.

    Args:
        database: Open; its settings name Kafka too.
        ids: Names of new replays.
        name: The consumer's name.
        consumer: The consumer itself; without it nobody knows which types it takes, and nothing can be applied.
        intake: Makes its intake on a given inbox; needed to apply.
        tell: Told of progress.
        report: File for one line of JSON per event, or None.
        by: Who has events applied, for the audit.
        reason: And why.
    """

    database: Database
    ids: Ids
    name: str
    consumer: Consumer | None = None
    intake: Callable[[Consumer, InboxStore], Intake] | None = None
    tell: Tell = tell_nobody
    report: Path | None = None
    by: str = ""
    reason: str = ""

    async def replay(
        self,
        *,
        topic: str,
        since: Edge,
        until: Edge | None = None,
        apply: bool = False,
        applicable: bool = False,
    ) -> ReplayReport:
        """Read a slice; see `Milepost.replay`.

        Args:
            applicable: Cut and refuse the slice as if it were to be applied, but apply nothing.
        """
        self._require_handlers(apply or applicable)
        async with self._guarded(), topic_slice.opened(self.database.settings, topic) as source:
            progress = await self._plan(source, topic, since, until, applicable=apply or applicable)
            progress.apply = apply
            if self.report is not None:
                self.report.write_bytes(b"")
            await replay_store.begin(self.database.pool, progress)
            if apply:
                await replay_store.audit(
                    self.database.pool, progress, self.ids.new(), by=self.by, reason=self.reason
                )
            return await self._run(source, progress)

    async def resume(self, replay_id: UUID) -> ReplayReport:
        """Go on with a replay that was interrupted, or tell again what a finished one has found."""
        async with self._guarded():
            progress = await replay_store.load(self.database.pool, replay_id)
            if progress is None or progress.consumer != self.name:
                raise StateError(
                    "MP494", f"replay: consumer {self.name} has no replay {replay_id}. Begin a new one."
                )
            self._take_up_report(progress)
            if progress.finished:
                return report_of(progress)
            async with topic_slice.opened(self.database.settings, progress.topic) as source:
                return await self._run(source, progress)

    async def _plan(
        self, source: Slice, topic: str, since: Edge, until: Edge | None, *, applicable: bool
    ) -> Progress:
        pool, keep = self.database.pool, self.database.settings.keep_inbox
        bounds = await source.bounds()
        if not bounds:
            raise UsageError("MP491", f"replay: there is no topic {topic}.")
        live = await self._read_up_to(topic, bounds)
        begins, ends = replay_plan.slice_of(
            topic,
            bounds,
            await _edge(source, since, bounds),
            None if until is None else await _edge(source, until, bounds),
        )
        if applicable and until is None:
            ends = {p: max(begins[p], min(end, live[p])) for p, end in ends.items()}
        floor = await replay_store.floor(pool, keep)
        if applicable:
            replay_plan.require_applicable(
                consumer=self.name,
                topic=topic,
                begins=begins,
                ends=ends,
                live=live,
                floor=floor,
                remembered=await source.at(floor, bounds),
            )
        return Progress(
            id=self.ids.new(),
            consumer=self.name,
            topic=topic,
            apply=False,
            begins=begins,
            ends=ends,
            live=live,
            floor=floor,
            nexts=dict(begins),
            started_at=floor,
        )

    async def _read_up_to(self, topic: str, partitions: Mapping[int, object]) -> dict[int, int]:
        stored = await InboxStore(self.name).positions(self.database.pool, [(topic, p) for p in partitions])
        committed = await topic_slice.group_offsets(self.database.settings, self.name, topic)
        return replay_plan.read_up_to({p: offset for (_, p), offset in stored.items()}, committed, partitions)

    async def _run(self, source: Slice, progress: Progress) -> ReplayReport:
        store, intake = ReplayStore(self.name), None
        self._require_handlers(progress.apply)
        if progress.apply and self.consumer is not None and self.intake is not None:
            intake = self.intake(self.consumer, store)
        pool = self.database.pool
        with Run(
            pool, progress, consumer=self.consumer, intake=intake, tell=self.tell, report=self.report
        ) as run:
            run.tell()
            for partition in sorted(progress.begins):
                await run.partition(source, partition)
            progress.finished = True
            await run.advance()
        if intake is not None:
            await store.forget_tries(pool)
        return report_of(progress)

    def _require_handlers(self, apply: bool) -> None:
        if apply and (self.consumer is None or self.intake is None):
            raise UsageError(
                "MP490",
                f"replay --apply: the handlers of consumer {self.name} are needed. Name the application that has it.",
            )

    def _take_up_report(self, progress: Progress) -> None:
        """Cut the report file back to what belongs to the stored progress."""
        if self.report is None and progress.report_bytes == 0:
            return
        size = self.report.stat().st_size if self.report is not None and self.report.exists() else 0
        if self.report is None or size < progress.report_bytes:
            raise StateError(
                "MP494",
                f"replay {progress.id}: its report file has {size} bytes, and {progress.report_bytes} belong to "
                "what is done. Give the same --report as before, or begin a new replay.",
            )
        with self.report.open("ab") as file:
            file.truncate(progress.report_bytes)

    @asynccontextmanager
    async def _guarded(self) -> AsyncGenerator[None]:
        try:
            yield
        except DATABASE_ERRORS as error:
            raise ConnectError(
                "MP496",
                f"replay of consumer {self.name}: the database went away ({str(error) or type(error).__name__}). What "
                "was done is stored; resume it.",
            ) from error


async def _edge(source: Slice, edge: Edge, bounds: Mapping[int, Any]) -> Offsets | Found:
    return await source.at(edge, bounds) if isinstance(edge, datetime) else edge
