"""`milepost doctor`: read the facts, print what they mean, and what to do next."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import asyncpg
import typer
from pydantic import TypeAdapter
from rich.text import Text

from ..recovery.sealing import Sql as Sealing
from ..schemas.errors import ConnectError, StartError, StateError
from ..schemas.ids import SystemClock
from ..schemas.options import Repeat
from ..schemas.settings import Duration, Settings
from ..schemas.states import StepKind, StepState
from ..streams.ends import end_offsets, written_at
from ..streams.migrate import migration_files
from ..streams.topics import describe
from . import acts, dead_store, findings, webhooks
from .age_findings import Place, aged, judge_ages, judge_consumers, waiting
from .application import definitions, event_topics, internal_topics, optional_app
from .findings import Check, Group
from .letters import ALARM, STUCK, judge_letters, judge_redrives, judge_unsent
from .memory import judge_memory
from .options import Globals
from .output import Output, clean
from .problems import FINDINGS, NO_CONNECTION, REFUSED
from .record_findings import judge_records, judge_requests, judge_unsealed
from .store import Sql, Store, reading

if TYPE_CHECKING:
    from ..consumers.app import Milepost

#: How long Kafka may take to answer, in seconds.
KAFKA_TIMEOUT = 10.0
#: How long a consumer has to read what was seen waiting for it, in seconds.
READ_ON = 2.0
_ASKED_STATES = (StepState.UNKNOWN, StepState.MANUAL_REQUIRED, StepState.COMPENSATION_FAILED)
_STYLES = {"ok": "green", "warning": "yellow", "error": "bold red"}


async def doctor(given: Globals, *, strict: bool) -> None:
    """Look at both servers and at everything that waits, and print one line for each.

    Args:
        strict: Warnings fail too.

    Raises:
        typer.Exit: 1 with findings, 3 when the schema is not this version's, 4 when a server cannot be reached.
    """
    given.to_environment()
    service = optional_app(given)
    checks: list[Check] = []
    async for check in examine(given, service):
        print_check(given.out, check)
        checks.append(check)
    status = verdict(checks, strict=strict)
    given.out.say(summary(checks))
    if status:
        raise typer.Exit(status)


def verdict(checks: Sequence[Check], *, strict: bool) -> int:
    """Return the exit status of what was found."""
    if any(check.name in {"postgresql", "kafka"} and check.severity == "error" for check in checks):
        return NO_CONNECTION
    if any(check.name == "schema" and check.severity == "error" for check in checks):
        return REFUSED
    bad = {"error", "warning"} if strict else {"error"}
    return FINDINGS if any(check.severity in bad for check in checks) else 0


def summary(checks: Sequence[Check]) -> str:
    """Count what was found, in words."""
    errors = sum(check.severity == "error" for check in checks)
    warnings = sum(check.severity == "warning" for check in checks)
    if not errors and not warnings:
        return "all is well"
    return f"{findings.counted(errors, 'error')}, {findings.counted(warnings, 'warning')}"


def print_check(out: Output, check: Check) -> None:
    """Print one check: a line, and under a finding what to do."""
    out.item(check=check.name, severity=check.severity, code=check.code, text=check.text, fix=check.fix)
    code = f"{check.code} " if check.code else ""
    out.hanging(Text(f"{check.severity:<8}", style=_STYLES[check.severity]), clean(code + check.text))
    if check.fix:
        out.hanging(Text(" " * 8), clean(f"What to do: {check.fix}"))


async def examine(given: Globals, service: Milepost | None) -> AsyncIterator[Check]:
    """Look at one thing after the other."""
    live, places = False, list[Place]()
    try:
        async with reading(given.database_url()) as store:
            server = await store.fetchrow(Sql.server)
            yield Check("postgresql", "ok", f"PostgreSQL {server['version']}")
            if not server["has_schema"]:
                yield Check(
                    "schema",
                    "error",
                    "this database has no Milepost schema.",
                    "MP607",
                    "Run `milepost migrate`.",
                )
            else:
                workers, places = await _workers(store), await _places(store)
                live = any(service is not None and worker.service == service.name for worker in workers)
                async for check in _database(store, workers):
                    yield check
            durability = findings.judge_durability(_delicate(service), synchronous=server["synchronous"])
            if durability is not None:
                yield durability
    except ConnectError as error:
        yield Check("postgresql", "error", error.text, error.code)
    except StateError as error:
        yield Check("schema", "error", error.text, error.code)
    async for check in _kafka(service, places, given, served=live):
        yield check


async def _database(store: Store, workers: Sequence[findings.Worker]) -> AsyncIterator[Check]:
    version = (await store.fetchrow(Sql.schema_version))[0]
    yield findings.judge_schema(version, migration_files()[-1].number)
    ahead = {row["parent"]: row["days"] for row in await store.fetch(Sql.partitions_ahead)}
    yield findings.judge_partitions(ahead)
    yield findings.judge_outbox(await store.lag())
    yield findings.judge_workers(workers, (await store.fetchrow(Sql.live_runs))[0])
    row = await store.fetchrow(Sql.overdue, findings.OVERDUE)
    yield findings.judge_overdue(Group("overdue", row["amount"], row["oldest"], row["first"] or ""))
    steps = await store.fetch(Sql.steps_in, [state.value for state in _ASKED_STATES])
    for check in findings.judge_states(
        [Group(r["state"], r["amount"], r["oldest"], r["first"]) for r in steps]
    ):
        yield check
    for check in judge_unsent(await store.unsent()):
        yield check
    letters = await store.fetch(Sql.open_letters)
    for check in judge_letters(_by_topic(letters), _alarm()):
        yield check
    for check in judge_redrives(_by_topic(await store.fetch(dead_store.Sql.stuck, STUCK))):
        yield check
    records = await store.fetch(webhooks.Sql.records_in_trouble, findings.OVERDUE)
    for check in judge_records([Group(r["what"], r["amount"], r["oldest"], r["first"]) for r in records]):
        yield check
    row = await store.fetchrow(acts.Sql.old_requests, findings.OVERDUE)
    yield judge_requests(Group("requests", row["amount"], row["oldest"], row["first"] or ""))
    row = await store.fetchrow(Sealing.waiting)
    yield judge_unsealed(row["amount"], row["oldest"])
    try:
        ages = await store.ages()
    except asyncpg.QueryCanceledError:
        yield Check("ages", "warning", findings.AGES_TOO_SLOW, "MP753", findings.AGES_FIX)
        return
    for check in judge_ages(ages):
        yield check


def _by_topic(rows: Sequence[Any]) -> list[Group]:
    return [Group(f"{r['scope']}, topic {r['topic']}", r["amount"], r["oldest"]) for r in rows]


def _alarm() -> timedelta:
    """Return the age of a letter that is an error; a setting that cannot be read is said elsewhere."""
    try:
        return TypeAdapter(Duration).validate_python(os.environ.get("MILEPOST_DEAD_LETTER_ALARM") or ALARM)
    except ValueError:
        return ALARM


async def _workers(store: Store) -> list[findings.Worker]:
    rows = await store.fetch(Sql.live_workers)
    return [findings.Worker(row["service"], row["name"], row["roles"]) for row in rows]


async def _places(store: Store) -> list[Place]:
    rows = await store.fetch(Sql.consumer_positions)
    return [
        Place(row["consumer"], row["topic"], row["partition"], row["next_offset"], row["still"])
        for row in rows
    ]


def _delicate(service: Milepost | None) -> list[str]:
    """Name the steps of the application whose call must not simply be repeated."""
    return [
        f"{definition.title} {node.name}"
        for definition in (definitions(service) if service is not None else [])
        for node in definition.nodes
        if node.kind is StepKind.STEP and node.repeat is not Repeat.SAFE
    ]


async def _kafka(
    service: Milepost | None, places: Sequence[Place], given: Globals, *, served: bool
) -> AsyncIterator[Check]:
    try:
        kafka = service.settings if service is not None else Settings.from_env()
    except StartError as error:
        yield Check("kafka", "error", error.text, error.code)
        return
    internal = internal_topics(service) if service is not None else []
    events = event_topics(service) if service is not None else []
    try:
        present = await describe(kafka, internal + events, within=KAFKA_TIMEOUT)
    except (ConnectError, StartError) as error:
        yield Check("kafka", "error", error.text, error.code)
        return
    yield Check("kafka", "ok", f"Kafka at {kafka.kafka}{_how(kafka)}")
    for topics in (
        findings.judge_topics(internal, present, served=served),
        findings.judge_event_topics(events, present, create=_may_create(service)),
    ):
        if topics is not None:
            yield topics
    try:
        ends = await end_offsets(kafka, {place.topic for place in places})
    except (ConnectError, StartError) as error:
        yield Check("consumers", "error", error.text, error.code)
        return
    if late := waiting(places, ends):
        written, _ = await asyncio.gather(written_at(kafka, late), asyncio.sleep(READ_ON))
        with suppress(ConnectError, StateError):
            async with reading(given.database_url()) as store:
                places = await _places(store)
        places = aged(places, written, SystemClock().now())
    for behind in judge_consumers(places, ends):
        yield behind
    for memory in await judge_memory(service) if service is not None else ():
        yield memory


def _how(settings: Settings) -> str:
    """Say how it is talked to, unless in plain text."""
    who = f", user {settings.kafka_user}" if settings.kafka_user else ""
    return "" if settings.kafka_security == "PLAINTEXT" else f" ({settings.kafka_security}{who})"


def _may_create(service: Milepost | None) -> bool:
    """Tell whether `serve` may create event topics; settings that cannot be read are said elsewhere."""
    try:
        return service is not None and service.settings.create_topics
    except StartError:
        return False
