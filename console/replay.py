"""`milepost replay`: a slice of a topic held against a consumer's inbox."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import asyncpg
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ..consumers.replay import Replayer
from ..consumers.replay_plan import Edge, written
from ..consumers.replay_run import ReplayReport
from ..consumers.replaying import replayer
from ..inbox.replay import ReplayOutcome
from ..recovery.acting import Attempt, refuse
from ..recovery.permissions import Act
from ..schemas.errors import UsageError
from ..schemas.ids import SystemClock, SystemIds
from ..schemas.settings import Settings
from ..streams.database import Database
from ..streams.tracing import setup_tracing
from .application import app_name, load_app
from .filters import read_since
from .findings import counted
from .options import Globals
from .output import Output, clean, column
from .problems import FINDINGS

_OFFSETS = re.compile(r"\d{1,9}:\d{1,18}(,\d{1,9}:\d{1,18})*")
#: Findings that people are shown; the report file has every event.
_SHOWN = 20
#: Outcomes that make the exit status 1.
_BAD = (ReplayOutcome.MISSING, ReplayOutcome.CONFLICTING)
_GOOD = (ReplayOutcome.APPLIED, ReplayOutcome.REPLAYED, ReplayOutcome.SKIPPED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What the command line asks for.

    Attributes:
        since: Where to begin; None only with `resume`.
    """

    consumer: str
    topic: str | None
    since: Edge | None
    until: Edge | None
    apply: bool
    report: Path | None
    resume: str | None
    reason: str | None


async def replay(given: Globals, wish: Wish) -> None:
    """Replay, and print what was found.

    Raises:
        UsageError: MP601 for options that do not fit together.
        typer.Exit: 1 when something is missing or conflicting.
    """
    resume = _require(wish)
    with Bar(given.out) as bar:
        async with _replayer(given, wish, bar) as ready:
            if resume is not None:
                report = await ready.resume(resume)
            else:
                report = await _begun(given, wish, ready, bar)
    _print(given.out, report, wish.report)
    if any(report.counts.get(outcome) for outcome in _BAD):
        raise typer.Exit(FINDINGS)


async def _begun(given: Globals, wish: Wish, ready: Replayer, bar: Bar) -> ReplayReport:
    """Replay; to apply, look first and ask."""
    assert wish.topic is not None and wish.since is not None
    found = await ready.replay(topic=wish.topic, since=wish.since, until=wish.until, applicable=wish.apply)
    if not wish.apply or not found.missing:
        return found
    bar.pause()
    given.confirm(
        f"Apply {counted(found.missing, 'missing event')} of {wish.topic} ({_slice(found)}) through {wish.consumer}?"
    )
    return await ready.replay(topic=wish.topic, since=found.begins, until=found.ends, apply=True)


def _require(wish: Wish) -> UUID | None:
    if wish.resume is not None:
        if wish.topic or wish.since or wish.until or wish.apply:
            raise UsageError(
                "MP601", "--resume goes on with the slice that it began; leave the other options out."
            )
        try:
            return UUID(wish.resume)
        except ValueError:
            raise UsageError("MP601", f"--resume {wish.resume!r} is no id of a replay.") from None
    if wish.topic is None or wish.since is None:
        raise UsageError(
            "MP601", "say which slice: --topic and --since are needed, unless --resume is given."
        )
    if wish.apply and not (wish.reason or "").strip():
        raise UsageError("MP601", "--apply needs --reason. Say why; it is kept in the audit.")
    return None


def read_edge(option: str, text: str) -> Edge:
    """Read an edge of a slice: offsets by partition ("0:120,1:90"), a time, or a duration ago.

    Raises:
        UsageError: MP601 when it is none of these, MP491 when a partition is there twice.
    """
    if _OFFSETS.fullmatch(text.strip()):
        pairs = [pair.split(":") for pair in text.strip().split(",")]
        offsets = {int(partition): int(offset) for partition, offset in pairs}
        if len(offsets) < len(pairs):
            raise UsageError("MP491", f"{option} {text}: a partition is there twice.")
        return offsets
    try:
        found = read_since(text)
    except UsageError:
        raise UsageError(
            "MP601",
            f"{option} {text!r} is neither offsets (0:120,1:90) nor a time (2026-12-02T18:00:00Z) nor a duration ago "
            "(2h, 7d).",
        ) from None
    return SystemClock().now() - found if isinstance(found, timedelta) else found


@asynccontextmanager
async def _replayer(given: Globals, wish: Wish, bar: Bar) -> AsyncGenerator[Replayer]:
    """Give what replays: with the application's handlers where one is named, else by the consumer's name alone."""
    service = load_app(given) if app_name(given) is not None else None
    if service is None:
        given.to_environment()
        given.out.note("without the application: types that the consumer does not take count as missing")
    settings = service.settings if service is not None else Settings.from_env()
    database = Database(settings, engine=service.engine if service is not None else None)
    await database.open()
    flush = setup_tracing(service.name if service is not None else "milepost")
    options: dict[str, Any] = {
        "report": wish.report,
        "tell": bar.tell,
        "by": given.by(),
        "reason": wish.reason or "",
    }
    try:
        await _permitted(given, wish, database)
        if service is not None:
            yield replayer(service, database, wish.consumer, **options)
        else:
            yield Replayer(database=database, ids=SystemIds(), name=wish.consumer, **options)
    finally:
        await asyncio.to_thread(flush)
        await database.close()
        if service is not None and service.engine is not None:
            await service.engine.dispose()


async def _permitted(given: Globals, wish: Wish, database: Database) -> None:
    """Refuse a replay that whoever acts may not make; what is resumed may be one that applies.

    Raises:
        StateError: MP660; the audit has it.
    """
    act = Act.REPLAY_APPLY if wish.apply or wish.resume is not None else Act.REPLAY_DRY_RUN
    evidence = {"consumer": wish.consumer, "topic": wish.topic, "resume": wish.resume}
    attempt = Attempt(act=act, name="replay", reason=wish.reason or "", evidence=evidence)
    async with database.pool.acquire() as connection:
        refused = await refuse(cast("asyncpg.Connection[Any]", connection), given.actor(), attempt)
    if refused is not None:
        raise refused


class Bar:
    """The progress on stderr: a bar on a terminal, else a line when a replay begins.

    Args:
        out: Where the command writes.
    """

    def __init__(self, out: Output) -> None:
        self._out = out
        self._shown = sys.stderr.isatty() and not out.as_json
        self._begun: UUID | None = None
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
            disable=not self._shown,
        )
        self._task = self._progress.add_task("", total=None)

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def pause(self) -> None:
        """Take the bar away, to ask something."""
        self._progress.stop()

    def tell(self, replay: UUID, done: int, total: int, counts: Mapping[str, int]) -> None:
        """Show how far a replay has come."""
        if replay != self._begun:
            self._begun = replay
            self._out.note(f"replay {replay}: {counted(total, 'offset')} (--resume it, if interrupted)")
            self._progress.start()
        missing = counts.get(ReplayOutcome.MISSING, 0)
        words = f"{missing} missing" if missing else "replaying"
        self._progress.update(self._task, completed=done, total=total, description=words)


def _print(out: Output, report: ReplayReport, file: Path | None) -> None:
    counts = {outcome.value: report.counts.get(outcome, 0) for outcome in ReplayOutcome}
    _items(out, report, counts)
    _words(out, report, counts, file)


def _items(out: Output, report: ReplayReport, counts: Mapping[str, int]) -> None:
    for event in report.findings:
        out.item(
            event="finding",
            partition=event.partition,
            offset=event.offset,
            outcome=event.outcome,
            id=event.id,
            event_id=event.event_id,
            type=event.type,
            key=event.key,
            detail=event.detail,
        )
    out.item(
        event="replay",
        replay=report.id,
        consumer=report.consumer,
        topic=report.topic,
        apply=report.apply,
        **counts,
        unidentified=report.unidentified,
        since=written(report.begins),
        until=written(report.ends),
    )


def _words(out: Output, report: ReplayReport, counts: Mapping[str, int], file: Path | None) -> None:
    always = (ReplayOutcome.APPLIED, ReplayOutcome.MISSING, ReplayOutcome.CONFLICTING)
    told = [o for o in ReplayOutcome if o in always or counts[o.value]]
    out.say(f"{report.topic} {_slice(report)} against {report.consumer}")
    out.say(", ".join(f"{outcome.value} {counts[outcome.value]}" for outcome in told))
    if report.unidentified:
        out.say(f"{counted(report.unidentified, 'event')} had no id of its own")
    if report.findings:
        out.table(
            [column("offset"), column("outcome"), column("type", fold=True), column("key", fold=True)],
            [
                [f"{e.partition}:{e.offset}", e.outcome.value, clean(e.type or e.detail), clean(e.key or "")]
                for e in report.findings[:_SHOWN]
            ],
        )
        others = sum(n for outcome, n in report.counts.items() if outcome not in _GOOD) - _SHOWN
        if others > 0:
            out.note(f"and {others} more" + ("" if file else "; --report FILE writes every event"))
    if file is not None:
        out.note(f"every event is in {file}")


def _slice(report: ReplayReport) -> str:
    return (
        ",".join(f"{p}:{begin}-{report.ends[p]}" for p, begin in sorted(report.begins.items())) or "(nothing)"
    )
