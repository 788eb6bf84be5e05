"""The loop of one replay, and the report it makes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any
from uuid import UUID

import asyncpg

from ..inbox import replay_store
from ..inbox.consumer import Consumer
from ..inbox.intake import Intake
from ..inbox.model import Item
from ..inbox.replay import Bounds, ReplayedEvent, ReplayOutcome, identified, outcome_of, told
from ..inbox.replay_store import Progress
from ..schemas.envelope import Record
from ..streams.slice import Slice
from ..streams.tracing import span
from .engine import DATABASE_ERRORS
from .replay_plan import Offsets

#: Records judged with one look at the inbox.
_BATCH = 2_000
#: Seconds between tries of a batch that meets trouble underneath.
_PAUSES = (0.1, 0.2, 0.5, 1.0, 1.0, 1.0)
#: Findings that a report names one by one; its file has all events.
MOST_FINDINGS = 100
_GOOD = frozenset({ReplayOutcome.APPLIED, ReplayOutcome.REPLAYED, ReplayOutcome.SKIPPED})

#: Told of progress: which replay, offsets done, offsets in all, events by outcome.
Tell = Callable[[UUID, int, int, Mapping[str, int]], None]


def tell_nobody(replay: UUID, done: int, total: int, counts: Mapping[str, int]) -> None:
    """Take no notice of progress."""


@dataclass(frozen=True, kw_only=True)
class ReplayReport:
    """What a replay has found.

    Attributes:
        id: Names the replay, for resuming it.
        begins: First offset of the slice, by partition.
        ends: Offset before which it ends, by partition.
        counts: Events by outcome.
        unidentified: Events without an id of their own; theirs is made of topic, partition and offset.
        findings: The first 100 events that are not simply applied.
    """

    id: UUID
    consumer: str
    topic: str
    apply: bool
    begins: Offsets
    ends: Offsets
    counts: Mapping[ReplayOutcome, int]
    unidentified: int
    findings: Sequence[ReplayedEvent]

    @property
    def applied(self) -> int:
        """Events whose effect is in the database, those that this replay has applied included."""
        return self.counts.get(ReplayOutcome.APPLIED, 0) + self.counts.get(ReplayOutcome.REPLAYED, 0)

    @property
    def missing(self) -> int:
        """Events that the consumer has read past and the inbox does not know."""
        return self.counts.get(ReplayOutcome.MISSING, 0)

    @property
    def conflicting(self) -> int:
        """Events whose id the inbox has with other content."""
        return self.counts.get(ReplayOutcome.CONFLICTING, 0)


class Run:
    """The loop of one replay.

    Args:
        pool: Where the inbox is.
        progress: Changed and stored as it goes on.
        consumer: Knows which types it takes, where it is at hand.
        intake: Applies what is missing; None to apply nothing.
        tell: Told of progress.
        report: File for one line of JSON per event, or None.
    """

    def __init__(
        self,
        pool: asyncpg.Pool[Any],
        progress: Progress,
        *,
        consumer: Consumer | None,
        intake: Intake | None,
        tell: Tell,
        report: Path | None,
    ) -> None:
        self._pool = pool
        self._progress = progress
        self._intake = intake
        self._tell = tell
        self._report = report
        self._file: IO[bytes] | None = None
        skips = consumer is not None and consumer.unknown == "skip"
        self._takes = (lambda type: consumer.handler_of(type) is not None) if consumer and skips else None
        self._most = min(_BATCH, consumer.batch) if intake is not None and consumer is not None else _BATCH

    def __enter__(self) -> Run:
        if self._report is not None:
            self._file = self._report.open("ab")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    async def partition(self, source: Slice, partition: int) -> None:
        """Read what is left of a partition."""
        progress = self._progress
        begin, end = progress.nexts[partition], progress.ends[partition]
        if begin >= end:
            return
        async with aclosing(source.read(partition, begin, end, most=self._most)) as batches:
            async for records in batches:
                await self._batch(records)
                progress.nexts[partition] = records[-1].offset + 1
                await self.advance()
        progress.nexts[partition] = end
        await self.advance()

    async def advance(self) -> None:
        """Store how far this has come, and tell it."""
        progress = self._progress
        if self._file is not None:
            self._file.flush()
            progress.report_bytes = self._file.tell()
        await replay_store.advance(self._pool, progress)
        self.tell()

    def tell(self) -> None:
        """Tell how far this has come."""
        progress = self._progress
        done = sum(progress.nexts[p] - begin for p, begin in progress.begins.items())
        total = sum(progress.ends[p] - begin for p, begin in progress.begins.items())
        self._tell(progress.id, done, total, progress.counts)

    async def _batch(self, records: Sequence[Record]) -> None:
        items = [identified(record) for record in records]
        outcomes = await self._judged(items)
        if self._intake is not None and ReplayOutcome.MISSING in outcomes:
            missing = [
                item.record
                for item, outcome in zip(items, outcomes, strict=True)
                if outcome is ReplayOutcome.MISSING
            ]
            with span("replay", attributes={"milepost.replay": str(self._progress.id)}):
                await self._applied(self._intake, missing)
            outcomes = await self._judged(items)
        for item, outcome in zip(items, outcomes, strict=True):
            self._note(item, outcome)

    async def _applied(self, intake: Intake, missing: Sequence[Record]) -> None:
        """Apply what is missing; what passes (a deadlock with the live consumer, say) is tried again, as readers do."""
        for pause in (*_PAUSES, None):
            try:
                await intake.handle(missing)
                return
            except DATABASE_ERRORS:
                if pause is None:
                    raise
                await asyncio.sleep(pause)

    async def _judged(self, items: Sequence[Item]) -> list[ReplayOutcome]:
        progress = self._progress
        known, purged_below = await replay_store.known_events(
            self._pool, progress.consumer, [item.id for item in items]
        )
        floor = progress.floor if purged_below is None else max(progress.floor, purged_below)
        bounds = Bounds(
            progress.live,
            floor.timestamp() * 1000,
            progress.started_at if progress.apply else None,
            self._takes,
        )
        return [outcome_of(item, known.get(item.id), bounds) for item in items]

    def _note(self, item: Item, outcome: ReplayOutcome) -> None:
        progress = self._progress
        progress.counts[outcome] = progress.counts.get(outcome, 0) + 1
        if item.envelope is not None and not item.envelope.identified:
            progress.unidentified += 1
        finding = outcome not in _GOOD and len(progress.findings) < MOST_FINDINGS
        if self._file is None and not finding:
            return
        line = _line(told(item, outcome))
        if finding:
            progress.findings.append(line)
        if self._file is not None:
            self._file.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")


def report_of(progress: Progress) -> ReplayReport:
    """Return what a replay has found so far."""
    return ReplayReport(
        id=progress.id,
        consumer=progress.consumer,
        topic=progress.topic,
        apply=progress.apply,
        begins=progress.begins,
        ends=progress.ends,
        counts={ReplayOutcome(name): amount for name, amount in sorted(progress.counts.items())},
        unidentified=progress.unidentified,
        findings=[
            ReplayedEvent(**{**line, "id": UUID(line["id"]), "outcome": ReplayOutcome(line["outcome"])})
            for line in progress.findings
        ],
    )


def _line(event: ReplayedEvent) -> dict[str, Any]:
    return {**asdict(event), "id": str(event.id), "outcome": event.outcome.value}
